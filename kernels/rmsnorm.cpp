#include "kernels/rmsnorm.h"

#include "kernels/checks.h"
#include "kernels/launch.h"
#include "kernels/layernorm.h"

namespace zinc::kernels {

namespace cpu {
void rmsnorm_forward(const RmsNormForward& args);
void rmsnorm_backward(const RmsNormBackward& args);
}  // namespace cpu
namespace cuda {
void rmsnorm_forward(const RmsNormForward& args, StreamRef stream);
void rmsnorm_backward(const RmsNormBackward& args, StreamRef stream);
}  // namespace cuda

void rmsnorm_forward(const RmsNormForward& args, StreamRef stream) {
  constexpr auto kOp = "rmsnorm";
  require_float(kOp, "x", args.x);
  const DType dtype = args.x.dtype();
  require_dense_operand(kOp, "gamma", args.gamma, dtype, Shape{args.x.cols()});
  require_operand(kOp, "y", args.y, dtype, args.x.shape());
  if (args.rstd) {
    require_row_statistic(kOp, "rstd", args.rstd, accumulator_of(dtype), args.x.rows());
  }
  row_stride(kOp, "x", args.x);
  row_stride(kOp, "y", args.y);
  require_same_device(kOp, {args.x, args.gamma, args.y, args.rstd});
  require_same_or_apart(kOp, "y", args.y, "x", args.x);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::rmsnorm_forward(args); },
      [&] { cuda::rmsnorm_forward(args, stream); });
}

void rmsnorm_backward(const RmsNormBackward& args, StreamRef stream) {
  constexpr auto kOp = "rmsnorm_backward";
  require_float(kOp, "x", args.x);
  const DType dtype = args.x.dtype();
  const Shape& shape = args.x.shape();
  require_operand(kOp, "dy", args.dy, dtype, shape);
  require_dense_operand(kOp, "gamma", args.gamma, dtype, Shape{args.x.cols()});
  require_row_statistic(kOp, "rstd", args.rstd, accumulator_of(dtype), args.x.rows());
  require_operand(kOp, "dx", args.dx, dtype, shape);
  row_stride(kOp, "dy", args.dy);
  row_stride(kOp, "x", args.x);
  row_stride(kOp, "dx", args.dx);
  if (args.dresidual) {
    require_operand(kOp, "dresidual", args.dresidual, dtype, shape);
    row_stride(kOp, "dresidual", args.dresidual);
    require_same_or_apart(kOp, "dx", args.dx, "dresidual", args.dresidual);
  }
  if (args.dgamma) {
    require_sum_target(kOp, "dgamma", args.dgamma, dtype, Shape{args.x.cols()});
    require_workspace(
        kOp, args.workspace,
        norm_backward_workspace_bytes(args.x.rows(), args.x.cols(), dtype, args.x.device().kind));
  }
  require_same_or_apart(kOp, "dx", args.dx, "dy", args.dy);
  require_same_or_apart(kOp, "dx", args.dx, "x", args.x);
  require_same_device(kOp, {args.dy, args.x, args.gamma, args.rstd, args.dresidual, args.dx,
                            args.dgamma, args.workspace});
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::rmsnorm_backward(args); },
      [&] { cuda::rmsnorm_backward(args, stream); });
}

// Operations of the formulas, per element; the square root of a row does not count.
Cost cost(const RmsNormForward& args) {
  return {.bytes_read = args.x.bytes() + args.gamma.bytes(),
          .bytes_written = args.y.bytes() + optional_bytes(args.rstd),
          .flops = 4 * args.x.numel()};
}

Cost cost(const RmsNormBackward& args) {
  return {.bytes_read = args.dy.bytes() + args.x.bytes() + args.gamma.bytes() + args.rstd.bytes() +
                        optional_bytes(args.dresidual) +
                        (args.accumulate_dgamma ? optional_bytes(args.dgamma) : 0),
          .bytes_written = args.dx.bytes() + optional_bytes(args.dgamma),
          .flops = 10 * args.x.numel()};
}

}  // namespace zinc::kernels
