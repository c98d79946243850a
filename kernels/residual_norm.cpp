#include "kernels/residual_norm.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void residual_norm_forward(const ResidualNormForward& args);
}  // namespace cpu
namespace cuda {
void residual_norm_forward(const ResidualNormForward& args, StreamRef stream);
}  // namespace cuda

void residual_norm_forward(const ResidualNormForward& args, StreamRef stream) {
  constexpr auto kOp = "residual_norm";
  require_float(kOp, "x", args.x);
  const DType dtype = args.x.dtype();
  const Shape cols{args.x.cols()};
  require_operand(kOp, "residual", args.residual, dtype, args.x.shape());
  require_dense_operand(kOp, "gamma", args.gamma, dtype, cols);
  if (args.beta) require_dense_operand(kOp, "beta", args.beta, dtype, cols);
  require(args.kind == NormKind::layer || (!args.beta && !args.mean), kOp,
          ": the rms norm has neither beta nor mean");
  require_operand(kOp, "sum", args.sum, dtype, args.x.shape());
  require_operand(kOp, "y", args.y, dtype, args.x.shape());
  for (const View& statistic : {args.mean, args.rstd}) {
    if (!statistic) continue;
    require_row_statistic(kOp, "mean or rstd", statistic, accumulator_of(dtype), args.x.rows());
  }
  for (const ConstView& view : {args.x, args.residual, ConstView(args.sum), ConstView(args.y)}) {
    row_stride(kOp, "x, residual, sum or y", view);
  }
  for (const View& out : {args.sum, args.y}) {
    require_same_or_apart(kOp, "an output", out, "x", args.x);
    require_same_or_apart(kOp, "an output", out, "residual", args.residual);
  }
  require(args.x.numel() == 0 || args.sum.data() != args.y.data(), kOp,
          ": sum and y must not be the same");
  require_apart(kOp, "sum", args.sum, "y", args.y);
  require_same_device(
      kOp, {args.x, args.residual, args.gamma, args.beta, args.sum, args.y, args.mean, args.rstd});
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::residual_norm_forward(args); },
      [&] { cuda::residual_norm_forward(args, stream); });
}

Cost cost(const ResidualNormForward& args) {
  return {.bytes_read = args.x.bytes() + args.residual.bytes() + args.gamma.bytes() +
                        optional_bytes(args.beta),
          .bytes_written = args.sum.bytes() + args.y.bytes() + optional_bytes(args.mean) +
                           optional_bytes(args.rstd),
          .flops = (args.kind == NormKind::layer ? 9 : 5) * args.x.numel()};
}

}  // namespace zinc::kernels
