// The head in chunks of rows, composed of gemm and the row kernels; everything is queued on one
// stream, so the workspace can go back to the allocator as soon as all is issued.
#include "kernels/linear_cross_entropy.h"

#include <algorithm>

#include "core/context.h"
#include "kernels/checks.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cuda/cross_entropy_rows.h"
#include "kernels/gemm.h"
#include "kernels/launch.h"

namespace zinc::kernels {
namespace {

// Rows of a chunk are a multiple.
constexpr int64_t kChunkUnit = 64;

// The arguments that the three entry points share. Optional views are absent where an entry point
// has none.
struct Head {
  const char* op = nullptr;
  ConstView hidden, weight, bias, labels;
  View loss, lse_out;  // computed, with a forward
  ConstView lse;       // given, without
  ConstView dloss;     // on the device, multiplies loss_scale
  View dhidden, dweight, dbias;
  bool accumulate = false;
  double loss_scale = 1.0;
  double smoothing = 0.0;
  ClassSlice slice{};
  bool narrow_logits = false;
  int64_t chunk_bytes = 0;

  int64_t rows() const { return hidden.dim(0); }
  int64_t features() const { return hidden.dim(1); }
  int64_t classes() const { return weight.dim(0); }
  DType dtype() const { return hidden.dtype(); }
  DType wide() const { return accumulator_of(dtype()); }
  DType logits_dtype() const { return narrow_logits ? dtype() : wide(); }
  bool has_gradient() const { return dhidden || dweight || dbias; }

  int64_t chunk_rows() const {
    const int64_t row_bytes = classes() * size_of(logits_dtype());
    const int64_t bytes = chunk_bytes > 0 ? chunk_bytes : head_chunk_bytes(hidden.device());
    const int64_t most = std::max(bytes / row_bytes / kChunkUnit * kChunkUnit, kChunkUnit);
    const int64_t chunks = std::max<int64_t>(1, (rows() + most - 1) / most);
    const int64_t even = (rows() + chunks - 1) / chunks;
    return std::max<int64_t>(1, (even + kChunkUnit - 1) / kChunkUnit * kChunkUnit);
  }
  int64_t chunks() const {
    return std::max<int64_t>(1, (rows() + chunk_rows() - 1) / chunk_rows());
  }
  // Elements from one row of logits to the next: an odd number of cache lines.
  int64_t logits_stride() const {
    const int64_t line = 64 / size_of(logits_dtype());
    const int64_t lines = (classes() + line - 1) / line;
    return (lines + (lines % 2 == 0 ? 1 : 0)) * line;
  }
};

void check_matrix(const Head& head, std::string_view name, const ConstView& view) {
  require_float(head.op, name, view);
  require(view.rank() == 2, head.op, ": ", name, " must have 2 dimensions, not shape ",
          view.shape());
}

void check_target(const Head& head, std::string_view name, const View& view, const Shape& shape) {
  if (view) require_sum_target(head.op, name, view, head.dtype(), shape);
}

void check(const Head& head) {
  check_matrix(head, "hidden", head.hidden);
  check_matrix(head, "weight", head.weight);
  require_dtype(head.op, "weight", head.weight, head.dtype());
  require(head.weight.dim(1) == head.features(), head.op, ": weight must be [classes, ",
          head.features(), "] for hidden ", head.hidden.shape(), ", not ", head.weight.shape());
  require(head.classes() > 0, head.op, ": weight must have at least one class");
  if (head.bias) {
    require_dense_operand(head.op, "bias", head.bias, head.dtype(), Shape{head.classes()});
  }
  require_index(head.op, "labels", head.labels);
  require_shape(head.op, "labels", head.labels, Shape{head.rows()});
  if (head.dhidden) {
    const DType dtype = head.dhidden.dtype() == head.wide() ? head.wide() : head.dtype();
    require_operand(head.op, "dhidden", head.dhidden, dtype, head.hidden.shape());
  }
  check_target(head, "dweight", head.dweight, head.weight.shape());
  check_target(head, "dbias", head.dbias, Shape{head.classes()});
  require(!head.dbias || head.bias, head.op, ": dbias needs bias");
  require_smoothing(head.op, head.smoothing);
  require_slice(head.op, head.slice, head.classes());
  require_same_device(
      head.op, {head.hidden, head.weight, head.bias, head.labels, head.loss, head.lse_out, head.lse,
                head.dloss, head.dhidden, head.dweight, head.dbias});
}

void check_scalar(const Head& head, std::string_view name, const ConstView& view) {
  require(static_cast<bool>(view), head.op, ": ", name, " is missing");
  require_dtype(head.op, name, view, head.wide());
  require(view.numel() == 1, head.op, ": ", name, " must have one element, not shape ",
          view.shape());
  require_computable(head.op, name, view);
}

Block allocate(int64_t bytes, StreamRef stream) {
  return Context::current().allocator().allocate(bytes, Tier::device, Label::workspace, stream);
}

// Sums over chunks of a gradient that is handed out in 16 bits: in f32, rounded once at the end.
// With one chunk, or a target that is as wide as the sums, the sum is made in the target.
class ChunkSum {
 public:
  ChunkSum(const Head& head, const View& target, StreamRef stream)
      : head_(head), target_(target), stream_(stream), sum_(target) {
    if (!target || target.dtype() == head.wide() || head.chunks() == 1) return;
    block_ = allocate(target.numel() * size_of(head.wide()), stream);
    sum_ = View(block_.data(), head.wide(), target.shape(), target.device());
  }
  const View& view() const { return sum_; }
  // The factor of the old value at the i-th chunk.
  double beta(int64_t chunk) const {
    return chunk > 0 || (!block_ && head_.accumulate) ? 1.0 : 0.0;
  }
  void finish() const {
    if (!block_) return;
    const Cost rounding{.bytes_read = sum_.bytes() + (head_.accumulate ? target_.bytes() : 0),
                        .bytes_written = target_.bytes(),
                        .flops = head_.accumulate ? target_.numel() : 0};
    run_on_device(
        head_.op, rounding, target_.device(), stream_,
        [sum = sum_, target = target_, accumulate = head_.accumulate] {
          cpu::round_sum(sum, target, accumulate);
        },
        [&] { cuda::round_sum(head_.op, sum_, target_, head_.accumulate, stream_); });
  }

 private:
  const Head& head_;
  View target_;
  StreamRef stream_;
  Block block_;
  View sum_;
};

// The cost of the rows, counted as cross_entropy counts them.
Cost cost_of_rows(const cpu::HeadRows& work) {
  return {
      .bytes_read = work.logits.bytes() + optional_bytes(work.labels) + optional_bytes(work.lse),
      .bytes_written = optional_bytes(work.dlogits) + optional_bytes(work.lse_out),
      .flops = (work.dlogits ? 7 : 4) * work.logits.numel()};
}

void run_chunks(const Head& head, StreamRef stream) {
  const int64_t rows = head.rows();
  const int64_t chunk_rows = head.chunk_rows();
  const int64_t stride = head.logits_stride();
  const DType logits_dtype = head.logits_dtype();
  const int64_t narrow_stride = stride * size_of(logits_dtype) / size_of(head.dtype());
  const Device device = head.hidden.device();
  const Block logits_block =
      allocate(std::min(rows, chunk_rows) * stride * size_of(logits_dtype), stream);
  const Block loss_block = allocate(head.loss ? rows * int64_t{sizeof(double)} : 0, stream);
  auto* row_loss = head.loss ? static_cast<double*>(loss_block.data()) : nullptr;
  const ChunkSum dweight(head, head.dweight, stream);
  const ChunkSum dbias(head, head.dbias, stream);
  for (int64_t chunk = 0; chunk < head.chunks(); ++chunk) {
    const int64_t begin = chunk * chunk_rows;
    const int64_t count = std::min(chunk_rows, rows - begin);
    const ConstView hidden = head.hidden.narrow(0, begin, count);
    const View logits(logits_block.data(), logits_dtype, {count, head.classes()}, {stride, 1},
                      device, Tier::device);
    // Gradients overwrite the logits, row for row.
    const View dlogits(logits_block.data(), head.dtype(), {count, head.classes()},
                       {narrow_stride, 1}, device, Tier::device);
    gemm({.a = hidden, .b = head.weight, .bias = head.bias, .c = logits, .transpose_b = true},
         stream);
    const auto part = [&](const ConstView& all) {
      return all ? all.narrow(0, begin, count) : ConstView();
    };
    cpu::HeadRows work{.op = head.op,
                       .logits = logits,
                       .labels = part(head.labels),
                       .lse = part(head.lse),
                       .factor = head.dloss,
                       .scale = head.loss_scale,
                       .smoothing = head.smoothing,
                       .slice = head.slice};
    if (head.lse_out) work.lse_out = head.lse_out.narrow(0, begin, count);
    if (row_loss != nullptr) work.row_loss = row_loss + begin;
    if (head.has_gradient()) work.dlogits = dlogits;
    run_on_device(
        head.op, cost_of_rows(work), device, stream, [work] { cpu::head_rows(work); },
        [&] { cuda::cross_entropy_rows(head.op, cpu::rows_of(work), stream); });
    if (head.dhidden) {
      gemm({.a = dlogits, .b = head.weight, .c = head.dhidden.narrow(0, begin, count)}, stream);
    }
    if (head.dweight) {
      gemm({.a = dlogits,
            .b = hidden,
            .c = dweight.view(),
            .transpose_a = true,
            .beta = dweight.beta(chunk)},
           stream);
    }
    if (head.dbias) {
      const Cost sums{.bytes_read = dlogits.bytes(), .flops = dlogits.numel()};
      const bool adds = dbias.beta(chunk) != 0.0;
      run_on_device(
          head.op, sums, device, stream,
          [dlogits, sum = dbias.view(), adds] { cpu::sum_columns(dlogits, sum, adds); },
          [&] { cuda::sum_columns(head.op, dlogits, dbias.view(), adds, stream); });
    }
  }
  dweight.finish();
  dbias.finish();
  if (row_loss != nullptr) {
    const Cost sum{.bytes_read = rows * int64_t{sizeof(double)}, .flops = rows};
    run_on_device(
        head.op, sum, device, stream,
        [row_loss, rows, loss = head.loss] { cpu::sum_row_losses(row_loss, rows, loss); },
        [&] { cuda::sum_row_losses(row_loss, rows, head.loss, stream); });
  }
}

// `products` of N x V x C; the row work is that of cross_entropy.
Cost head_cost(const Head& head, int64_t products) {
  Cost cost{.bytes_read = optional_bytes(head.hidden) + optional_bytes(head.weight) +
                          optional_bytes(head.bias) + optional_bytes(head.labels) +
                          optional_bytes(head.lse) + optional_bytes(head.dloss),
            .bytes_written = optional_bytes(head.loss) + optional_bytes(head.lse_out) +
                             optional_bytes(head.dhidden) + optional_bytes(head.dweight) +
                             optional_bytes(head.dbias),
            .flops = products * 2 * head.rows() * head.classes() * head.features() +
                     (products > 1 ? 7 : 4) * head.rows() * head.classes()};
  if (head.accumulate) cost.bytes_read += optional_bytes(head.dweight) + optional_bytes(head.dbias);
  return cost;
}

Head head_of(const LinearCrossEntropyForward& args) {
  return {.op = "linear_cross_entropy",
          .hidden = args.hidden,
          .weight = args.weight,
          .bias = args.bias,
          .labels = args.labels,
          .loss = args.loss,
          .lse_out = args.lse,
          .smoothing = args.smoothing,
          .slice = args.slice,
          .narrow_logits = args.narrow_logits,
          .chunk_bytes = args.chunk_bytes};
}
Head head_of(const LinearCrossEntropyBackward& args) {
  return {.op = "linear_cross_entropy_backward",
          .hidden = args.hidden,
          .weight = args.weight,
          .bias = args.bias,
          .labels = args.labels,
          .lse = args.lse,
          .dloss = args.dloss,
          .dhidden = args.dhidden,
          .dweight = args.dweight,
          .dbias = args.dbias,
          .accumulate = args.accumulate_dweight,
          .smoothing = args.smoothing,
          .slice = args.slice,
          .narrow_logits = args.narrow_logits,
          .chunk_bytes = args.chunk_bytes};
}
Head head_of(const LinearCrossEntropyWithGradient& args) {
  return {.op = "linear_cross_entropy_with_gradient",
          .hidden = args.hidden,
          .weight = args.weight,
          .bias = args.bias,
          .labels = args.labels,
          .loss = args.loss,
          .dloss = args.device_loss_scale,
          .dhidden = args.dhidden,
          .dweight = args.dweight,
          .dbias = args.dbias,
          .accumulate = args.accumulate_dweight,
          .loss_scale = args.loss_scale,
          .smoothing = args.smoothing,
          .narrow_logits = args.narrow_logits,
          .chunk_bytes = args.chunk_bytes};
}

int64_t gradient_products(const Head& head) {
  return (head.dhidden ? 1 : 0) + (head.dweight ? 1 : 0);
}

}  // namespace

int64_t head_chunk_bytes(const Device& device) {
  return int64_t{device.is_cuda() ? 1024 : 128} << 20;
}

void linear_cross_entropy_forward(const LinearCrossEntropyForward& args, StreamRef stream) {
  const Head head = head_of(args);
  check(head);
  check_scalar(head, "loss", args.loss);
  if (args.lse) require_dense_operand(head.op, "lse", args.lse, head.wide(), Shape{head.rows()});
  run_chunks(head, stream);
}
Cost cost(const LinearCrossEntropyForward& args) { return head_cost(head_of(args), 1); }

void linear_cross_entropy_backward(const LinearCrossEntropyBackward& args, StreamRef stream) {
  const Head head = head_of(args);
  check(head);
  check_scalar(head, "dloss", args.dloss);
  require_dense_operand(head.op, "lse", args.lse, head.wide(), Shape{head.rows()});
  if (head.has_gradient()) run_chunks(head, stream);
}
Cost cost(const LinearCrossEntropyBackward& args) {
  const Head head = head_of(args);
  return head_cost(head, 1 + gradient_products(head));
}

void linear_cross_entropy_with_gradient(const LinearCrossEntropyWithGradient& args,
                                        StreamRef stream) {
  const Head head = head_of(args);
  check(head);
  check_scalar(head, "loss", args.loss);
  if (args.device_loss_scale) check_scalar(head, "device_loss_scale", args.device_loss_scale);
  run_chunks(head, stream);
}
Cost cost(const LinearCrossEntropyWithGradient& args) {
  const Head head = head_of(args);
  return head_cost(head, 1 + gradient_products(head));
}

}  // namespace zinc::kernels
