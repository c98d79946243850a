#include "kernels/accumulate.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void accumulate(const Accumulate& args);
}  // namespace cpu
namespace cuda {
void accumulate(const Accumulate& args, StreamRef stream);
}  // namespace cuda

void accumulate(const Accumulate& args, StreamRef stream) {
  constexpr auto kOp = "accumulate";
  require_float(kOp, "x", args.x);
  require_float(kOp, "accumulator", args.accumulator);
  require(args.x.dtype() != DType::f64 || args.accumulator.dtype() == DType::f64, kOp,
          ": x of f64 needs an accumulator of f64, not ", args.accumulator.dtype());
  require_dense_operand(kOp, "x", args.x, args.x.dtype(), args.accumulator.shape());
  require_contiguous(kOp, "accumulator", args.accumulator);
  require_same_device(kOp, {args.x, args.accumulator});
  require_apart(kOp, "accumulator", args.accumulator, "x", args.x);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::accumulate(args); },
      [&] { cuda::accumulate(args, stream); });
}

Cost cost(const Accumulate& args) {
  const int64_t read = args.overwrite ? 0 : args.accumulator.bytes();
  return {.bytes_read = args.x.bytes() + read,
          .bytes_written = args.accumulator.bytes(),
          .flops = args.overwrite ? 0 : args.x.numel()};
}

}  // namespace zinc::kernels
