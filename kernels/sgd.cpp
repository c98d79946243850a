#include "kernels/sgd.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void sgd(const Sgd& args);
}  // namespace cpu
namespace cuda {
void sgd(const Sgd& args, StreamRef stream);
}  // namespace cuda

void sgd(const Sgd& args, StreamRef stream) {
  constexpr auto kOp = "sgd";
  require_update_operands(kOp, args.weights, args.gradient, args.model_weights, args.factor,
                          args.skip);
  if (args.momentum != 0.0) {
    require_dense_operand(kOp, "velocity", args.velocity, args.weights.dtype(),
                          args.weights.shape());
    require_apart(kOp, "velocity", args.velocity, "weights", args.weights);
    require_apart(kOp, "velocity", args.velocity, "gradient", args.gradient);
    require_apart(kOp, "velocity", args.velocity, "model_weights", args.model_weights);
    require_same_device(kOp, {args.weights, args.velocity});
  }
  require(args.momentum >= 0.0, kOp, ": momentum must not be negative: ", args.momentum);
  require(!args.nesterov || (args.momentum > 0.0 && args.dampening == 0.0), kOp,
          ": nesterov needs momentum > 0 and dampening 0, not ", args.momentum, " and ",
          args.dampening);
  if (args.weights.numel() == 0) return;
  run_on_device(
      kOp, args, args.weights.device(), stream, [args] { cpu::sgd(args); },
      [&] { cuda::sgd(args, stream); });
}

// Operations per element as the header lists them, an fma as two.
Cost cost(const Sgd& args) {
  const bool momentum = args.momentum != 0.0;
  const int64_t velocity = momentum ? args.velocity.bytes() : 0;
  const int64_t per_element =
      3 + (args.weight_decay != 0.0 ? 2 : 0) + (momentum ? 3 : 0) + (args.nesterov ? 2 : 0);
  return {
      .bytes_read = args.weights.bytes() + args.gradient.bytes() + (args.first_step ? 0 : velocity),
      .bytes_written = args.weights.bytes() + velocity + optional_bytes(args.model_weights),
      .flops = per_element * args.weights.numel()};
}

}  // namespace zinc::kernels
