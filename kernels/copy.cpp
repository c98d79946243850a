#include "kernels/copy.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void copy(const Copy& args);
}  // namespace cpu
namespace cuda {
void copy(const Copy& args, StreamRef stream);
}  // namespace cuda

void copy(const Copy& args, StreamRef stream) {
  constexpr auto kOp = "copy";
  require_operand(kOp, "x", args.x, args.x.dtype(), args.x.shape());
  require_operand(kOp, "y", args.y, args.y.dtype(), args.x.shape());
  require(!is_float(args.x.dtype()) || is_float(args.y.dtype()), kOp, ": ", args.x.dtype(),
          " does not convert to ", args.y.dtype());
  require_same_device(kOp, {args.x, args.y});
  require_apart(kOp, "y", args.y, "x", args.x);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::copy(args); },
      [&] { cuda::copy(args, stream); });
}

Cost cost(const Copy& args) {
  return {.bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = 0};
}

}  // namespace zinc::kernels
