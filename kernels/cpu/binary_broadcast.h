// kernels/cpu/binary_broadcast.h: what the f64 and the vector paths of binary share.
#pragma once

#include "core/view.h"
#include "kernels/binary.h"

namespace zinc::kernels::cpu {

// Strides that repeat `view` over the leading dimensions of `shape`.
inline Strides broadcast_strides(const ConstView& view, const Shape& shape) {
  if (view.shape() == shape) return view.strides();
  Strides strides{};
  const int lead = shape.rank() - view.rank();
  for (int i = 0; i < view.rank(); ++i) strides[static_cast<size_t>(lead + i)] = view.stride(i);
  return strides;
}

// The gradient does not depend on the arguments, which may then be absent.
inline constexpr bool is_linear(BinaryOp op) { return op == BinaryOp::add || op == BinaryOp::sub; }

template <class Sum, class Target>
void store_sum(Target& target, Sum sum, bool accumulate) {
  target = Target(accumulate ? Sum(target) + sum : sum);
}

}  // namespace zinc::kernels::cpu
