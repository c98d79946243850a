#include "kernels/gelu.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void gelu_forward(const GeluForward& args);
void gelu_backward(const GeluBackward& args);
}  // namespace cpu
namespace cuda {
void gelu_forward(const GeluForward& args, StreamRef stream);
void gelu_backward(const GeluBackward& args, StreamRef stream);
}  // namespace cuda

void gelu_forward(const GeluForward& args, StreamRef stream) {
  constexpr auto kOp = "gelu";
  require_float(kOp, "x", args.x);
  require_operand(kOp, "y", args.y, args.x.dtype(), args.x.shape());
  require_same_device(kOp, {args.x, args.y});
  require_same_or_apart(kOp, "y", args.y, "x", args.x);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::gelu_forward(args); },
      [&] { cuda::gelu_forward(args, stream); });
}

void gelu_backward(const GeluBackward& args, StreamRef stream) {
  constexpr auto kOp = "gelu_backward";
  require_float(kOp, "x", args.x);
  require_operand(kOp, "dy", args.dy, args.x.dtype(), args.x.shape());
  require_operand(kOp, "dx", args.dx, args.x.dtype(), args.x.shape());
  require_same_device(kOp, {args.x, args.dy, args.dx});
  require_same_or_apart(kOp, "dx", args.dx, "x", args.x);
  require_same_or_apart(kOp, "dx", args.dx, "dy", args.dy);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::gelu_backward(args); },
      [&] { cuda::gelu_backward(args, stream); });
}

// Operations of the formulas; tanh, erf and exp count as one.
Cost cost(const GeluForward& args) {
  return {
      .bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = 8 * args.x.numel()};
}

Cost cost(const GeluBackward& args) {
  return {.bytes_read = args.x.bytes() + args.dy.bytes(),
          .bytes_written = args.dx.bytes(),
          .flops = 16 * args.x.numel()};
}

}  // namespace zinc::kernels
