// kernels/broadcast.h: shapes that stretch to a larger one, by the rules of NumPy: dimensions are
// matched from the last one on; an extent of 1, or a missing dimension, repeats.
#pragma once

#include <string_view>

#include "core/shape.h"
#include "core/view.h"

namespace zinc::kernels {

// The shape that both stretch to. Throws InvalidArgument that begins with `op` and names both.
Shape broadcast_shape(std::string_view op, const Shape& a, const Shape& b);
bool is_broadcastable(const Shape& from, const Shape& to);
// `from` is one element, or the last dimensions of `to` (extents of 1 may stand before them): its
// elements together are repeated.
bool repeats_as_a_row(const Shape& from, const Shape& to);
// The strides with which elements of `view` are found by the indices of `shape`; 0 where they are
// repeated, in the last dimension too.
Strides broadcast_strides(const ConstView& view, const Shape& shape);
// The result `y` may be the argument itself; it shares no byte with one that is repeated.
void require_result_apart(std::string_view op, std::string_view name_y, const ConstView& y,
                          std::string_view name, const ConstView& argument);

}  // namespace zinc::kernels
