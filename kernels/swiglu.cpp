#include "kernels/swiglu.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void swiglu_forward(const SwiGluForward& args);
void swiglu_backward(const SwiGluBackward& args);
}  // namespace cpu
namespace cuda {
void swiglu_forward(const SwiGluForward& args, StreamRef stream);
void swiglu_backward(const SwiGluBackward& args, StreamRef stream);
}  // namespace cuda

void swiglu_forward(const SwiGluForward& args, StreamRef stream) {
  constexpr auto kOp = "swiglu";
  require_float(kOp, "gate", args.gate);
  require_operand(kOp, "up", args.up, args.gate.dtype(), args.gate.shape());
  require_operand(kOp, "y", args.y, args.gate.dtype(), args.gate.shape());
  require_same_device(kOp, {args.gate, args.up, args.y});
  require_same_or_apart(kOp, "y", args.y, "gate", args.gate);
  require_same_or_apart(kOp, "y", args.y, "up", args.up);
  if (args.gate.numel() == 0) return;
  run_on_device(
      kOp, args, args.gate.device(), stream, [args] { cpu::swiglu_forward(args); },
      [&] { cuda::swiglu_forward(args, stream); });
}

void swiglu_backward(const SwiGluBackward& args, StreamRef stream) {
  constexpr auto kOp = "swiglu_backward";
  require_float(kOp, "gate", args.gate);
  const DType dtype = args.gate.dtype();
  const Shape& shape = args.gate.shape();
  require_operand(kOp, "dy", args.dy, dtype, shape);
  require_operand(kOp, "up", args.up, dtype, shape);
  require_operand(kOp, "dgate", args.dgate, dtype, shape);
  require_operand(kOp, "dup", args.dup, dtype, shape);
  require_same_device(kOp, {args.dy, args.gate, args.up, args.dgate, args.dup});
  require(args.gate.numel() == 0 || args.dgate.data() != args.dup.data(), kOp,
          ": dgate and dup must not be the same");
  require_apart(kOp, "dgate", args.dgate, "dup", args.dup);
  for (const View& out : {args.dgate, args.dup}) {
    require_same_or_apart(kOp, "a gradient", out, "gate", args.gate);
    require_same_or_apart(kOp, "a gradient", out, "up", args.up);
    require_same_or_apart(kOp, "a gradient", out, "dy", args.dy);
  }
  if (args.gate.numel() == 0) return;
  run_on_device(
      kOp, args, args.gate.device(), stream, [args] { cpu::swiglu_backward(args); },
      [&] { cuda::swiglu_backward(args, stream); });
}

// Operations of the formulas; a sigmoid counts as one.
Cost cost(const SwiGluForward& args) {
  return {.bytes_read = args.gate.bytes() + args.up.bytes(),
          .bytes_written = args.y.bytes(),
          .flops = 3 * args.gate.numel()};
}

Cost cost(const SwiGluBackward& args) {
  return {.bytes_read = args.dy.bytes() + args.gate.bytes() + args.up.bytes(),
          .bytes_written = args.dgate.bytes() + args.dup.bytes(),
          .flops = 8 * args.gate.numel()};
}

}  // namespace zinc::kernels
