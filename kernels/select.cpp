#include "kernels/select.h"

#include "kernels/broadcast.h"
#include "kernels/checks.h"
#include "kernels/fill.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void select(const Select& args);
}
namespace cuda {
void select(const Select& args, StreamRef stream);
}

void select(const Select& args, StreamRef stream) {
  constexpr auto kOp = "select";
  const DType dtype = args.y.dtype();
  require_operand(kOp, "mask", args.mask, DType::u8, args.mask.shape());
  Shape shape = args.mask.shape();
  for (const ConstView& side : {args.a, args.b}) {
    if (!side) continue;
    require_operand(kOp, "a or b", side, dtype, side.shape());
    shape = broadcast_shape(kOp, shape, side.shape());
  }
  require_operand(kOp, "y", args.y, dtype, shape);
  for (const double value : {args.a_value, args.b_value}) {
    require(is_value_of(dtype, value), kOp, ": ", value, " is no value of ", dtype);
  }
  require_apart(kOp, "y", args.y, "mask", args.mask);
  if (args.a) require_result_apart(kOp, "y", args.y, "a", args.a);
  if (args.b) require_result_apart(kOp, "y", args.y, "b", args.b);
  require_same_device(kOp, {args.mask, args.a, args.b, args.y});
  if (shape.numel() == 0) return;
  run_on_device(
      kOp, args, args.y.device(), stream, [args] { cpu::select(args); },
      [&] { cuda::select(args, stream); });
}

Cost cost(const Select& args) {
  return {.bytes_read = args.mask.bytes() + optional_bytes(args.a) + optional_bytes(args.b),
          .bytes_written = args.y.bytes()};
}

}  // namespace zinc::kernels
