#include "kernels/unary.h"

#include "kernels/broadcast.h"
#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void unary(const Unary& args);
void unary_backward(const UnaryBackward& args);
}  // namespace cpu
namespace cuda {
void unary(const Unary& args, StreamRef stream);
void unary_backward(const UnaryBackward& args, StreamRef stream);
}  // namespace cuda

std::string_view name_of(UnaryOp op) {
  switch (op) {
#define ZINC_ROW(name, ...) \
  case UnaryOp::name:       \
    return #name;
    ZINC_UNARY_OPS(ZINC_ROW)
#undef ZINC_ROW
  }
  return "?";
}

void unary(const Unary& args, StreamRef stream) {
  constexpr auto kOp = "unary";
  require_float(kOp, "x", args.x);
  const bool stretches = is_broadcastable(args.x.shape(), args.y.shape());
  require_operand(kOp, "y", args.y, args.x.dtype(), stretches ? args.y.shape() : args.x.shape());
  require_same_device(kOp, {args.x, args.y});
  require_result_apart(kOp, "y", args.y, "x", args.x);
  if (args.y.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::unary(args); },
      [&] { cuda::unary(args, stream); });
}

void unary_backward(const UnaryBackward& args, StreamRef stream) {
  constexpr auto kOp = "unary_backward";
  require_float(kOp, "x", args.x);
  require_operand(kOp, "dy", args.dy, args.x.dtype(), args.x.shape());
  require_operand(kOp, "dx", args.dx, args.x.dtype(), args.x.shape());
  require_same_device(kOp, {args.x, args.dy, args.dx});
  require_same_or_apart(kOp, "dx", args.dx, "x", args.x);
  require_same_or_apart(kOp, "dx", args.dx, "dy", args.dy);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::unary_backward(args); },
      [&] { cuda::unary_backward(args, stream); });
}

Cost cost(const Unary& args) {
  return {.bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = args.y.numel()};
}

Cost cost(const UnaryBackward& args) {
  return {.bytes_read = args.x.bytes() + args.dy.bytes(),
          .bytes_written = args.dx.bytes(),
          .flops = 2 * args.x.numel()};
}

}  // namespace zinc::kernels
