// Residual addition and norm: norm_forward.h. The backward pass is that of the norm.
#include "kernels/residual_norm.h"

#include "kernels/cuda/norm_forward.h"

namespace zinc::kernels::cuda {

void residual_norm_forward(const ResidualNormForward& args, StreamRef stream) {
  const NormForward all{.op = "residual_norm",
                        .x = args.x,
                        .residual = args.residual,
                        .gamma = args.gamma,
                        .beta = args.beta,
                        .sum = args.sum,
                        .y = args.y,
                        .mean = args.mean,
                        .rstd = args.rstd,
                        .eps = args.eps};
  if (args.kind == NormKind::layer) {
    launch_norm_forward<true>(all, stream);
  } else {
    launch_norm_forward<false>(all, stream);
  }
}

}  // namespace zinc::kernels::cuda
