#include "kernels/fp8_round.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void fp8_round(const Fp8Round& args);
}  // namespace cpu
namespace cuda {
void fp8_round(const Fp8Round& args, StreamRef stream);
}  // namespace cuda

void fp8_round(const Fp8Round& args, StreamRef stream) {
  constexpr auto kOp = "fp8_round";
  require(args.format != Fp8::none, kOp, ": a format is missing");
  require_operand(kOp, "x", args.x, DType::bf16, args.x.shape());
  require_operand(kOp, "y", args.y, DType::bf16, args.x.shape());
  require_dense_operand(kOp, "largest", args.largest, DType::f32, Shape{1});
  require_same_device(kOp, {args.x, args.y, args.largest});
  require_same_or_apart(kOp, "y", args.y, "x", args.x);
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::fp8_round(args); },
      [&] { cuda::fp8_round(args, stream); });
}

// The largest magnitude has to be known before anything is rounded: x is read twice.
Cost cost(const Fp8Round& args) {
  return {.bytes_read = (args.is_known ? 1 : 2) * args.x.bytes(),
          .bytes_written = args.y.bytes(),
          .flops = 4 * args.x.numel()};
}

}  // namespace zinc::kernels
