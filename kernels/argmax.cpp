#include "kernels/argmax.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void argmax(const Argmax& args);
}
namespace cuda {
void argmax(const Argmax& args, StreamRef stream);
}

void argmax(const Argmax& args, StreamRef stream) {
  constexpr auto kOp = "argmax";
  require_float(kOp, "x", args.x);
  require(args.x.rank() == 2, kOp, ": x must be [rows, cols], not ", args.x.shape());
  require(args.x.dim(1) > 0, kOp, ": no place in rows of no elements, of shape ", args.x.shape());
  row_stride(kOp, "x", args.x);
  require_dense_operand(kOp, "y", args.y, DType::i64, Shape{args.x.dim(0)});
  require_same_device(kOp, {args.x, args.y});
  if (args.y.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::argmax(args); },
      [&] { cuda::argmax(args, stream); });
}

Cost cost(const Argmax& args) {
  return {.bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = args.x.numel()};
}

}  // namespace zinc::kernels
