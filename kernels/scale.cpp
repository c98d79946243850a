#include "kernels/scale.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void scale(const Scale& args);
}  // namespace cpu
namespace cuda {
void scale(const Scale& args, StreamRef stream);
}  // namespace cuda

void scale(const Scale& args, StreamRef stream) {
  constexpr auto kOp = "scale";
  require_float(kOp, "x", args.x);
  require_operand(kOp, "y", args.y, args.x.dtype(), args.x.shape());
  if (args.device_factor) {
    require_operand(kOp, "device_factor", args.device_factor, DType::f32, Shape{1});
  }
  if (args.sum_of_squares) {
    require_operand(kOp, "sum_of_squares", args.sum_of_squares, DType::f64, Shape{1});
    require(!args.device_factor, kOp, ": device_factor and sum_of_squares exclude each other");
    require(args.least_norm > 0.0, kOp, ": least_norm must be above 0, not ", args.least_norm);
  }
  require_same_device(kOp, {args.x, args.y, args.device_factor, args.sum_of_squares});
  require_same_or_apart(kOp, "y", args.y, "x", args.x);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::scale(args); },
      [&] { cuda::scale(args, stream); });
}

Cost cost(const Scale& args) {
  return {.bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = args.x.numel()};
}

}  // namespace zinc::kernels
