#include "kernels/compare.h"

#include "kernels/broadcast.h"
#include "kernels/checks.h"
#include "kernels/fill.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void compare(const Compare& args);
}
namespace cuda {
void compare(const Compare& args, StreamRef stream);
}

std::string_view name_of(CompareOp op) {
  switch (op) {
#define ZINC_ROW(name, ...) \
  case CompareOp::name:     \
    return #name;
    ZINC_COMPARE_OPS(ZINC_ROW)
#undef ZINC_ROW
  }
  return "?";
}

void compare(const Compare& args, StreamRef stream) {
  constexpr auto kOp = "compare";
  require_operand(kOp, "a", args.a, args.a.dtype(), args.a.shape());
  Shape shape = args.a.shape();
  if (args.b) {
    require_operand(kOp, "b", args.b, args.a.dtype(), args.b.shape());
    shape = broadcast_shape(kOp, shape, args.b.shape());
  } else {
    require(is_value_of(args.a.dtype(), args.b_value), kOp, ": ", args.b_value, " is no value of ",
            args.a.dtype());
  }
  require_operand(kOp, "y", args.y, DType::u8, shape);
  require_apart(kOp, "y", args.y, "a", args.a);
  if (args.b) require_apart(kOp, "y", args.y, "b", args.b);
  require_same_device(kOp, {args.a, args.b, args.y});
  if (shape.numel() == 0) return;
  run_on_device(
      kOp, args, args.a.device(), stream, [args] { cpu::compare(args); },
      [&] { cuda::compare(args, stream); });
}

Cost cost(const Compare& args) {
  return {.bytes_read = args.a.bytes() + (args.b ? args.b.bytes() : 0),
          .bytes_written = args.y.bytes(),
          .flops = args.y.numel()};
}

}  // namespace zinc::kernels
