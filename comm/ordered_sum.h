// comm/ordered_sum.h: the sum of Note [Ordered reduction] over arrays in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace zinc::comm {

struct OrderedSum {
  std::span<const std::byte* const> sources;  // by rank: [n] of `dtype`
  DType dtype = DType::f32;                   // f64 | f32 | bf16 | f16
  int64_t n = 0;
  std::byte* out = nullptr;      // [n] of `out_dtype`; may be one of the sources
  DType out_dtype = DType::f32;  // `dtype` or f32
  bool accumulate = false;
};

// In the calling thread.
void ordered_sum(const OrderedSum& args);

}  // namespace zinc::comm
