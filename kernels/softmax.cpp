#include "kernels/softmax.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void softmax_forward(const SoftmaxForward& args);
void softmax_backward(const SoftmaxBackward& args);
}  // namespace cpu
namespace cuda {
void softmax_forward(const SoftmaxForward& args, StreamRef stream);
void softmax_backward(const SoftmaxBackward& args, StreamRef stream);
}  // namespace cuda

void softmax_forward(const SoftmaxForward& args, StreamRef stream) {
  constexpr auto kOp = "softmax";
  require_float(kOp, "x", args.x);
  require_contiguous(kOp, "x", args.x);
  require_dense_operand(kOp, "y", args.y, args.x.dtype(), args.x.shape());
  require_same_device(kOp, {args.x, args.y});
  require_same_or_apart(kOp, "y", args.y, "x", args.x);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::softmax_forward(args); },
      [&] { cuda::softmax_forward(args, stream); });
}

void softmax_backward(const SoftmaxBackward& args, StreamRef stream) {
  constexpr auto kOp = "softmax_backward";
  require_float(kOp, "dy", args.dy);
  require_contiguous(kOp, "dy", args.dy);
  require_dense_operand(kOp, "y", args.y, args.dy.dtype(), args.dy.shape());
  require_dense_operand(kOp, "dx", args.dx, args.dy.dtype(), args.dy.shape());
  require_same_device(kOp, {args.dy, args.y, args.dx});
  require_same_or_apart(kOp, "dx", args.dx, "dy", args.dy);
  require_same_or_apart(kOp, "dx", args.dx, "y", args.y);
  if (args.dy.numel() == 0) return;
  run_on_device(
      kOp, args, args.dy.device(), stream, [args] { cpu::softmax_backward(args); },
      [&] { cuda::softmax_backward(args, stream); });
}

// Per element: maximum, subtraction, exponential, sum, scale.
Cost cost(const SoftmaxForward& args) {
  return {
      .bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = 5 * args.x.numel()};
}

// Per element: product and sum, subtraction, product.
Cost cost(const SoftmaxBackward& args) {
  return {.bytes_read = args.dy.bytes() + args.y.bytes(),
          .bytes_written = args.dx.bytes(),
          .flops = 4 * args.dy.numel()};
}

}  // namespace zinc::kernels
