#include "kernels/unary.h"

#include "kernels/cpu/element_blocks.h"
#include "kernels/cpu/plain_elements.h"

namespace zinc::kernels::cpu {

void unary(const Unary& args) {
  if (args.x.dtype() != DType::f64) {
    return map_blocks(value_block(args.op), args.y, {args.x}, args.p, args.q);
  }
  map_plain<double, double>(args.y, std::array<ConstView, 1>{args.x}, [&](F64 x) {
    return value_of(args.op, x, F64(args.p), F64(args.q)).value;
  });
}

void unary_backward(const UnaryBackward& args) {
  if (args.x.dtype() != DType::f64) {
    return map_blocks(gradient_block(args.op), args.dx, {args.x, args.dy}, args.p, args.q);
  }
  map_plain<double, double>(args.dx, std::array<ConstView, 2>{args.x, args.dy}, [&](F64 x, F64 dy) {
    return gradient_of(args.op, x, dy, F64(args.p), F64(args.q)).value;
  });
}

}  // namespace zinc::kernels::cpu
