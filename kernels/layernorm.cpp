#include "kernels/layernorm.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/cpu/norm_blocks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void layernorm_forward(const LayerNormForward& args);
void layernorm_backward(const LayerNormBackward& args);
}  // namespace cpu
namespace cuda {
void layernorm_forward(const LayerNormForward& args, StreamRef stream);
void layernorm_backward(const LayerNormBackward& args, StreamRef stream);
}  // namespace cuda

int64_t norm_backward_workspace_bytes(int64_t rows, int64_t cols, DType dtype, DeviceKind device) {
  const int64_t sums = device == DeviceKind::cpu ? num_norm_blocks(rows) * kNormPartials
                                                 : 2 * std::min(rows, kMaxNormSumBlocks);
  return sums * cols * size_of(accumulator_of(dtype));
}

void layernorm_forward(const LayerNormForward& args, StreamRef stream) {
  constexpr auto kOp = "layernorm";
  require_float(kOp, "x", args.x);
  const DType dtype = args.x.dtype();
  const Shape cols{args.x.cols()};
  require_dense_operand(kOp, "gamma", args.gamma, dtype, cols);
  if (args.beta) require_dense_operand(kOp, "beta", args.beta, dtype, cols);
  require_operand(kOp, "y", args.y, dtype, args.x.shape());
  for (const View& statistic : {args.mean, args.rstd}) {
    if (!statistic) continue;
    require_row_statistic(kOp, "mean or rstd", statistic, accumulator_of(dtype), args.x.rows());
  }
  row_stride(kOp, "x", args.x);
  row_stride(kOp, "y", args.y);
  require_same_device(kOp, {args.x, args.gamma, args.beta, args.y, args.mean, args.rstd});
  require_same_or_apart(kOp, "y", args.y, "x", args.x);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::layernorm_forward(args); },
      [&] { cuda::layernorm_forward(args, stream); });
}

void layernorm_backward(const LayerNormBackward& args, StreamRef stream) {
  constexpr auto kOp = "layernorm_backward";
  require_float(kOp, "x", args.x);
  const DType dtype = args.x.dtype();
  const Shape& shape = args.x.shape();
  const Shape cols{args.x.cols()};
  require_operand(kOp, "dy", args.dy, dtype, shape);
  require_dense_operand(kOp, "gamma", args.gamma, dtype, cols);
  require_row_statistic(kOp, "mean", args.mean, accumulator_of(dtype), args.x.rows());
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
  if (args.dgamma) require_sum_target(kOp, "dgamma", args.dgamma, dtype, cols);
  if (args.dbeta) require_sum_target(kOp, "dbeta", args.dbeta, dtype, cols);
  if (args.dgamma || args.dbeta) {
    require_workspace(
        kOp, args.workspace,
        norm_backward_workspace_bytes(args.x.rows(), args.x.cols(), dtype, args.x.device().kind));
  }
  require_same_or_apart(kOp, "dx", args.dx, "dy", args.dy);
  require_same_or_apart(kOp, "dx", args.dx, "x", args.x);
  require_same_device(kOp, {args.dy, args.x, args.gamma, args.mean, args.rstd, args.dresidual,
                            args.dx, args.dgamma, args.dbeta, args.workspace});
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::layernorm_backward(args); },
      [&] { cuda::layernorm_backward(args, stream); });
}

// Operations of the formulas, per element; the square root of a row does not count.
Cost cost(const LayerNormForward& args) {
  return {.bytes_read = args.x.bytes() + args.gamma.bytes() + optional_bytes(args.beta),
          .bytes_written = args.y.bytes() + optional_bytes(args.mean) + optional_bytes(args.rstd),
          .flops = 8 * args.x.numel()};
}

Cost cost(const LayerNormBackward& args) {
  const int64_t accumulated = (args.accumulate_dgamma ? optional_bytes(args.dgamma) : 0) +
                              (args.accumulate_dbeta ? optional_bytes(args.dbeta) : 0);
  return {
      .bytes_read = args.dy.bytes() + args.x.bytes() + args.gamma.bytes() + args.mean.bytes() +
                    args.rstd.bytes() + optional_bytes(args.dresidual) + accumulated,
      .bytes_written = args.dx.bytes() + optional_bytes(args.dgamma) + optional_bytes(args.dbeta),
      .flops = 14 * args.x.numel()};
}

}  // namespace zinc::kernels
