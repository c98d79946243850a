#include "kernels/broadcast.h"

#include "kernels/checks.h"

namespace zinc::kernels {

bool is_broadcastable(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (int d = 1; d <= from.rank(); ++d) {
    if (from.dim(-d) != 1 && from.dim(-d) != to.dim(-d)) return false;
  }
  return true;
}

bool repeats_as_a_row(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  int64_t matched = 1;
  for (int d = 1; d <= from.rank() && from.dim(-d) == to.dim(-d); ++d) matched *= to.dim(-d);
  return from.numel() == 1 || from.numel() == matched;
}

Shape broadcast_shape(std::string_view op, const Shape& a, const Shape& b) {
  Shape shape = a.rank() >= b.rank() ? a : b;
  const Shape& other = a.rank() >= b.rank() ? b : a;
  for (int d = 1; d <= other.rank(); ++d) {
    const int64_t left = shape.dim(-d);
    const int64_t right = other.dim(-d);
    require(left == right || left == 1 || right == 1, op, ": shapes do not match: ", a, " and ", b);
    shape.set(shape.rank() - d, left == 1 ? right : left);
  }
  return shape;
}

Strides broadcast_strides(const ConstView& view, const Shape& shape) {
  if (view.shape() == shape) return view.strides();
  Strides strides{};
  for (int d = 1; d <= view.rank(); ++d) {
    if (view.dim(-d) != 1) strides[static_cast<size_t>(shape.rank() - d)] = view.stride(-d);
  }
  return strides;
}

void require_result_apart(std::string_view op, std::string_view name_y, const ConstView& y,
                          std::string_view name, const ConstView& argument) {
  if (argument.shape() == y.shape()) {
    require_same_or_apart(op, name_y, y, name, argument);
  } else {
    require_apart(op, name_y, y, name, argument);
  }
}

}  // namespace zinc::kernels
