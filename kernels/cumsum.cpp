#include "kernels/cumsum.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void cumsum(const Cumsum& args);
}
namespace cuda {
void cumsum(const Cumsum& args, StreamRef stream);
}

void cumsum(const Cumsum& args, StreamRef stream) {
  constexpr auto kOp = "cumsum";
  require_float(kOp, "x", args.x);
  require(args.x.rank() >= 1, kOp, ": x must have at least one dimension");
  require_contiguous(kOp, "x", args.x);
  require_dense_operand(kOp, "y", args.y, args.x.dtype(), args.x.shape());
  require_same_or_apart(kOp, "y", args.y, "x", args.x);
  require_same_device(kOp, {args.x, args.y});
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::cumsum(args); },
      [&] { cuda::cumsum(args, stream); });
}

Cost cost(const Cumsum& args) {
  return {.bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = args.x.numel()};
}

}  // namespace zinc::kernels
