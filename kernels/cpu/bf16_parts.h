// kernels/cpu/bf16_parts.h: the parts along k in which a bf16 block product computes a block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/bf16_product.h"

namespace zinc::kernels::cpu {

// Parts are at most kBf16Part, multiples of 32, and as equal as this goes.
inline int64_t part_of(int64_t k) {
  constexpr int64_t kUnit = 32;
  const int64_t parts = (k + kBf16Part - 1) / kBf16Part;
  return ((k + parts - 1) / parts + kUnit - 1) / kUnit * kUnit;
}

// The elements that count for rows [i, i + rows) of c in the part [k, k + depth): columns of c
// before `cols`, and elements [begin, end) of the part's `depth`.
struct SeenPart {
  int64_t cols, begin, end;
};

inline SeenPart seen_by(const CausalCut& cut, const BlockShape& shape, int64_t i, int64_t rows,
                        int64_t k, int64_t depth) {
  SeenPart seen{.cols = shape.n, .begin = 0, .end = depth};
  const int64_t last = std::min(i + rows, shape.m) - 1;
  if (cut.plane == CausalCut::Plane::c) {
    seen.cols = std::min(seen.cols, last + cut.diagonal + 1);
  } else if (cut.plane == CausalCut::Plane::a && shape.transpose_a) {
    seen.begin = std::clamp<int64_t>(i - cut.diagonal - k, 0, depth);
  } else if (cut.plane == CausalCut::Plane::a) {
    seen.end = std::clamp<int64_t>(last + cut.diagonal + 1 - k, 0, depth);
  }
  return seen;
}

}  // namespace zinc::kernels::cpu
