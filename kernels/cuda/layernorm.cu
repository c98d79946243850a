// LayerNorm: norm_forward.h and norm_backward.h.
#include "kernels/layernorm.h"

#include "kernels/cuda/norm_backward.h"
#include "kernels/cuda/norm_forward.h"

namespace zinc::kernels::cuda {

void layernorm_forward(const LayerNormForward& args, StreamRef stream) {
  launch_norm_forward<true>({.op = "layernorm",
                             .x = args.x,
                             .residual = {},
                             .gamma = args.gamma,
                             .beta = args.beta,
                             .sum = {},
                             .y = args.y,
                             .mean = args.mean,
                             .rstd = args.rstd,
                             .eps = args.eps},
                            stream);
}

void layernorm_backward(const LayerNormBackward& args, StreamRef stream) {
  launch_norm_backward<true>({.op = "layernorm_backward",
                              .dy = args.dy,
                              .x = args.x,
                              .gamma = args.gamma,
                              .mean = args.mean,
                              .rstd = args.rstd,
                              .dresidual = args.dresidual,
                              .dx = args.dx,
                              .dgamma = args.dgamma,
                              .dbeta = args.dbeta,
                              .accumulate_dgamma = args.accumulate_dgamma,
                              .accumulate_dbeta = args.accumulate_dbeta,
                              .workspace = args.workspace},
                             stream);
}

}  // namespace zinc::kernels::cuda
