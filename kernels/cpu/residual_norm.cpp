#include "kernels/residual_norm.h"

#include "kernels/binary.h"
#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"

namespace zinc::kernels::cpu {

void binary(const Binary& args);
void layernorm_forward(const LayerNormForward& args);
void rmsnorm_forward(const RmsNormForward& args);

// The composition itself.
void residual_norm_forward(const ResidualNormForward& args) {
  binary({.op = BinaryOp::add, .a = args.x, .b = args.residual, .y = args.sum});
  if (args.kind == NormKind::layer) {
    layernorm_forward({.x = args.sum,
                       .gamma = args.gamma,
                       .beta = args.beta,
                       .y = args.y,
                       .mean = args.mean,
                       .rstd = args.rstd,
                       .eps = args.eps});
  } else {
    rmsnorm_forward(
        {.x = args.sum, .gamma = args.gamma, .y = args.y, .rstd = args.rstd, .eps = args.eps});
  }
}

}  // namespace zinc::kernels::cpu
