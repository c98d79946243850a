#include "kernels/cross_entropy.h"

#include "core/context.h"
#include "kernels/checks.h"
#include "kernels/cpu/cross_entropy_rows.h"
#include "kernels/cuda/cross_entropy_rows.h"
#include "kernels/launch.h"

namespace zinc::kernels {
namespace {

// [N, V] with a free row stride.
void require_logits(std::string_view op, std::string_view name, const ConstView& logits) {
  require_float(op, name, logits);
  require(logits.rank() == 2 && logits.dim(1) > 0, op, ": ", name,
          " must be [rows, classes] with at least one class, not ", logits.shape());
  const bool overlap = logits.dim(0) > 1 && logits.stride(0) < logits.dim(1);
  require(!overlap, op, ": the rows of ", name, " overlap");
}

void require_scalar(std::string_view op, std::string_view name, const ConstView& view,
                    DType dtype) {
  require(static_cast<bool>(view), op, ": ", name, " is missing");
  require_dtype(op, name, view, dtype);
  require(view.numel() == 1, op, ": ", name, " must have one element, not shape ", view.shape());
  require_computable(op, name, view);
}

void require_labels(std::string_view op, const ConstView& labels, int64_t rows) {
  require_index(op, "labels", labels);
  require_shape(op, "labels", labels, Shape{rows});
}

cpu::CrossEntropyRows rows_of(const ConstView& logits, const ConstView& labels, double smoothing,
                              const ClassSlice& slice) {
  return {.rows = logits.dim(0),
          .classes = logits.dim(1),
          .dtype = logits.dtype(),
          .logits = logits.data(),
          .logits_stride = logits.stride(0),
          .labels = labels,
          .smoothing = smoothing,
          .slice = slice};
}

}  // namespace

void require_smoothing(std::string_view op, double smoothing) {
  require(smoothing >= 0.0 && smoothing <= 1.0, op, ": label smoothing must lie in [0, 1], not ",
          smoothing);
}

void require_slice(std::string_view op, const ClassSlice& slice, int64_t columns) {
  if (slice.total == 0) return;
  require(slice.first >= 0 && columns <= slice.total - slice.first, op, ": classes ", slice.first,
          " to ", slice.first + columns, " are not among ", slice.total);
}

void cross_entropy_forward(const CrossEntropyForward& args, StreamRef stream) {
  constexpr auto kOp = "cross_entropy";
  require_logits(kOp, "logits", args.logits);
  const DType wide = accumulator_of(args.logits.dtype());
  const int64_t rows = args.logits.dim(0);
  require_labels(kOp, args.labels, rows);
  require_smoothing(kOp, args.smoothing);
  require_slice(kOp, args.slice, args.logits.dim(1));
  require_scalar(kOp, "loss", args.loss, wide);
  if (args.lse) require_dense_operand(kOp, "lse", args.lse, wide, Shape{rows});
  require_same_device(kOp, {args.logits, args.labels, args.loss, args.lse});
  Block row_loss = Context::current().allocator().allocate(rows * int64_t{sizeof(double)},
                                                           Tier::device, Label::workspace, stream);
  cpu::CrossEntropyRows work = rows_of(args.logits, args.labels, args.smoothing, args.slice);
  work.lse_out = args.lse.data();
  work.row_loss = static_cast<double*>(row_loss.data());
  run_on_device(
      kOp, args, args.logits.device(), stream,
      [work, loss = args.loss] {
        cpu::cross_entropy_rows(kOp, work);
        cpu::sum_row_losses(work.row_loss, work.rows, loss);
      },
      [&] {
        cuda::cross_entropy_rows(kOp, work, stream);
        cuda::sum_row_losses(work.row_loss, work.rows, args.loss, stream);
      });
}

void cross_entropy_backward(const CrossEntropyBackward& args, StreamRef stream) {
  constexpr auto kOp = "cross_entropy_backward";
  require_logits(kOp, "logits", args.logits);
  const DType wide = accumulator_of(args.logits.dtype());
  const int64_t rows = args.logits.dim(0);
  require_labels(kOp, args.labels, rows);
  require_smoothing(kOp, args.smoothing);
  require_slice(kOp, args.slice, args.logits.dim(1));
  require_dense_operand(kOp, "lse", args.lse, wide, Shape{rows});
  require_scalar(kOp, "dloss", args.dloss, wide);
  require_operand(kOp, "dlogits", args.dlogits, args.logits.dtype(), args.logits.shape());
  require_logits(kOp, "dlogits", args.dlogits);
  require_same_device(kOp, {args.logits, args.labels, args.lse, args.dloss, args.dlogits});
  const bool same_start = args.dlogits.data() == args.logits.data();
  require(!same_start || args.dlogits.stride(0) == args.logits.stride(0), kOp,
          ": dlogits may be logits itself, but must not overlap it in part");
  if (!same_start) require_apart(kOp, "dlogits", args.dlogits, "logits", args.logits);
  cpu::CrossEntropyRows work = rows_of(args.logits, args.labels, args.smoothing, args.slice);
  work.lse = args.lse.data();
  work.dlogits = args.dlogits.data();
  work.dlogits_dtype = args.dlogits.dtype();
  work.dlogits_stride = args.dlogits.stride(0);
  work.factor = args.dloss.data();
  run_on_device(
      kOp, args, args.logits.device(), stream, [work] { cpu::cross_entropy_rows(kOp, work); },
      [&] { cuda::cross_entropy_rows(kOp, work, stream); });
}

// Per element: maximum, subtraction, exponential, sum.
Cost cost(const CrossEntropyForward& args) {
  return {.bytes_read = args.logits.bytes() + args.labels.bytes(),
          .bytes_written = args.loss.bytes() + (args.lse ? args.lse.bytes() : 0),
          .flops = 4 * args.logits.numel()};
}

// Per element: subtraction, exponential, product.
Cost cost(const CrossEntropyBackward& args) {
  return {.bytes_read =
              args.logits.bytes() + args.labels.bytes() + args.lse.bytes() + args.dloss.bytes(),
          .bytes_written = args.dlogits.bytes(),
          .flops = 3 * args.logits.numel()};
}

}  // namespace zinc::kernels
