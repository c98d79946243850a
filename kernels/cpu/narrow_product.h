// kernels/cpu/narrow_product.h: block products of a few rows, which cost as much as reading B.
//
// A decoder that writes one token a text multiplies few rows with all of its weights. Other block
// products copy B first, widened or packed, which pays where many rows are multiplied with it. Here
// B is read once, as it lies.
#pragma once

#include "kernels/cpu/block_product.h"
#include "kernels/matrix_product.h"

namespace zinc::kernels::cpu {

inline constexpr int64_t kMostNarrowRows = 8;

// Decided by the whole product, not by its tiles: how a product is cut changes no bit.
inline bool is_narrow(const MatrixProduct& p) { return p.m <= kMostNarrowRows && !p.transpose_a; }

// Products of at most kMostNarrowRows rows, a not transposed. Sums are in f32: of lanes along k
// where b is transposed, else in the order of k.
BlockProductPtr make_narrow_product(const BlockShape& shape);

}  // namespace zinc::kernels::cpu
