// kernels/permute.h: copies a tensor with its dimensions in another order; a transpose is one.
// y.shape[d] = x.shape[order[d]];  y[i_0, i_1, ...] = x[...] with index i_d at dimension order[d].
#pragma once

#include <array>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Permute {
  ConstView x;                        // any dtype, rank >= 1; outer strides are free
  std::array<int, kMaxRank> order{};  // the first x.rank() entries: a permutation of 0 .. rank - 1
  View y;  // permuted shape, dtype of x, overwrites; must not overlap x; outer strides are free
};

// Asynchronous on `stream`. The gradient is the inverse permutation: inverse_order.
void permute(const Permute& args, StreamRef stream);
Cost cost(const Permute& args);

// order of the permutation that undoes `order`, for `rank` dimensions.
std::array<int, kMaxRank> inverse_order(const std::array<int, kMaxRank>& order, int rank);
// The shape of the result.
Shape permuted_shape(const Shape& shape, const std::array<int, kMaxRank>& order);

}  // namespace zinc::kernels
