#include "kernels/reduce.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void reduce(const Reduce& args);
void reduce_backward(const ReduceBackward& args);
}  // namespace cpu
namespace cuda {
void reduce(const Reduce& args, StreamRef stream);
void reduce_backward(const ReduceBackward& args, StreamRef stream);
}  // namespace cuda

namespace {

Shape reduced_shape(std::string_view op, ReduceOver over, const Shape& shape) {
  require(shape.rank() >= 1, op, ": x must have at least one dimension");
  switch (over) {
    case ReduceOver::last: {
      Shape result;
      for (int i = 0; i + 1 < shape.rank(); ++i) result.push_back(shape[i]);
      return result;
    }
    case ReduceOver::leading:
      return Shape{shape.cols()};
    case ReduceOver::all:
      break;
  }
  return Shape{};
}

// Sum over all also takes y of shape [1].
void require_reduced(std::string_view op, std::string_view name, const ConstView& y, DType dtype,
                     ReduceOver over, const Shape& shape) {
  const Shape reduced = reduced_shape(op, over, shape);
  const bool one = over == ReduceOver::all && y.shape() == Shape{1};
  require_sum_target(op, name, y, dtype, one ? Shape{1} : reduced);
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::mean:
      return "mean";
    case ReduceOp::max:
      return "max";
  }
  return "?";
}

void reduce(const Reduce& args, StreamRef stream) {
  constexpr auto kOp = "reduce";
  require_float(kOp, "x", args.x);
  require_reduced(kOp, "y", args.y, args.x.dtype(), args.over, args.x.shape());
  if (args.over == ReduceOver::all) {
    require_contiguous(kOp, "x", args.x);
  } else {
    row_stride(kOp, "x", args.x);
  }
  require_apart(kOp, "y", args.y, "x", args.x);
  require_same_device(kOp, {args.x, args.y});
  if (args.y.numel() == 0) return;
  require(args.op != ReduceOp::max || args.x.numel() > 0, kOp, ": no maximum of no elements");
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::reduce(args); },
      [&] { cuda::reduce(args, stream); });
}

void reduce_backward(const ReduceBackward& args, StreamRef stream) {
  constexpr auto kOp = "reduce_backward";
  require_float(kOp, "dx", args.dx);
  require_reduced(kOp, "dy", args.dy, args.dx.dtype(), args.over, args.dx.shape());
  if (args.over == ReduceOver::all) {
    require_contiguous(kOp, "dx", args.dx);
  } else {
    row_stride(kOp, "dx", args.dx);
  }
  if (args.op == ReduceOp::max) {
    require_operand(kOp, "x", args.x, args.dx.dtype(), args.dx.shape());
    if (args.over == ReduceOver::all) require_contiguous(kOp, "x", args.x);
    row_stride(kOp, "x", args.x);
    require_apart(kOp, "dx", args.dx, "x", args.x);
    require_same_device(kOp, {args.dx, args.x});
  }
  require_apart(kOp, "dx", args.dx, "dy", args.dy);
  require_same_device(kOp, {args.dx, args.dy});
  if (args.dx.numel() == 0) return;
  run_on_device(
      kOp, args, args.dx.device(), stream, [args] { cpu::reduce_backward(args); },
      [&] { cuda::reduce_backward(args, stream); });
}

Cost cost(const Reduce& args) {
  return {.bytes_read = args.x.bytes() + (args.accumulate ? args.y.bytes() : 0),
          .bytes_written = args.y.bytes(),
          .flops = args.x.numel()};
}

Cost cost(const ReduceBackward& args) {
  const bool max = args.op == ReduceOp::max;
  return {.bytes_read = args.dy.bytes() + (max ? args.x.bytes() : 0),
          .bytes_written = args.dx.bytes(),
          .flops = max ? args.dx.numel() : args.dy.numel()};
}

}  // namespace zinc::kernels
