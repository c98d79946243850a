// kernels/tree_sum.h: the sum of several arrays over a fixed binary tree of their indices.
//
// For width 1, 2, 4, ... the partial sum at array r (a multiple of 2 * width) adds the partial sum
// at r + width; an absent leaf is skipped, never added as zero: the sum that Note [Ordered
// reduction] of comm/communicator.h prescribes. Elements are converted to f32 (f64 stays f64),
// added, and the result is rounded once to the dtype of `out`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

inline constexpr int64_t kMaxTreeSumArrays = 1024;

struct TreeSum {
  ConstView in;  // [count, n] f64 | f32 | bf16 | f16, row r is array r, rows at any stride;
                 // 1 <= count <= kMaxTreeSumArrays
  View out;  // [n] contiguous, dtype of `in`, or f32; may be a row of `in`, and no other overlap
  bool accumulate = false;  // out + sum, added in f32 (f64) and rounded once, instead of sum
};

// Asynchronous on `stream`. Element i depends on the elements i alone, so two splits of one array
// give the same bits. Deterministic.
void tree_sum(const TreeSum& args, StreamRef stream);
Cost cost(const TreeSum& args);

// The same sum of arrays at any addresses in host memory.
struct HostTreeSum {
  std::span<const std::byte* const> in;  // 1 to kMaxTreeSumArrays of [n], f64 | f32 | bf16 | f16
  DType dtype = DType::f32;
  int64_t n = 0;
  std::byte* out = nullptr;      // [n]; may be one of the arrays, and no other overlap
  DType out_dtype = DType::f32;  // `dtype` or f32
  bool accumulate = false;
};

// In the calling thread, done at return. Bits equal those of tree_sum().
void tree_sum_on_host(const HostTreeSum& args);

}  // namespace zinc::kernels
