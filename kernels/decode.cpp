#include "kernels/decode.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void decode(const Decode& args);
}  // namespace cpu
namespace cuda {
void decode(const Decode& args, StreamRef stream);
}  // namespace cuda

void decode(const Decode& args, StreamRef stream) {
  constexpr auto kOp = "decode";
  require_float(kOp, "y", args.y);
  require_dense_operand(kOp, "y", args.y, args.y.dtype(), args.y.shape());
  require_dense_operand(kOp, "x", args.x, DType::u8,
                        Shape{encoded_bytes(args.format, args.y.numel())});
  require_workspace(kOp, args.x, args.x.bytes());
  require_same_device(kOp, {args.x, args.y});
  require_apart(kOp, "y", args.y, "x", args.x);
  if (args.y.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::decode(args); },
      [&] { cuda::decode(args, stream); });
}

void decode_on_host(const Decode& args) { cpu::decode(args); }

Cost cost(const Decode& args) {
  return {.bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = args.y.numel()};
}

}  // namespace zinc::kernels
