// kernels/cpu/dropout_threshold.h: dropout's comparison as one of integers.
#pragma once

#include <cstdint>

#include "core/philox.h"

namespace zinc::kernels::cpu {

// An element whose random word is w is kept where (w >> 9) >= the threshold, which is equivalent to
// RandomKey::to_uniform(w) >= p in f32, because to_uniform rises with w >> 9. 2^23: none is kept.
inline uint32_t dropout_threshold(double p) {
  uint32_t low = 0;
  uint32_t high = uint32_t{1} << 23;
  if (p >= 1.0) return high;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (RandomKey::to_uniform(middle << 9) >= static_cast<float>(p)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// 1 / (1 - p), rounded once; 0 where nothing is kept.
template <class A>
A dropout_factor(double p) {
  return p == 1.0 ? A(0) : static_cast<A>(1.0 / (1.0 - p));
}

}  // namespace zinc::kernels::cpu
