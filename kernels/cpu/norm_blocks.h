// kernels/cpu/norm_blocks.h: how the rows of a norm's backward pass are cut into blocks.
//
// Each block of rows sums its part of dgamma and dbeta into `kNormPartials` arrays of [cols] in the
// workspace: the sums of the last few rows (kNormRunRows) of both, and the totals of both. Two
// levels keep the rounding of long sums small. A function of the number of rows alone.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zinc::kernels {

inline constexpr int64_t kNormPartials = 4;
inline constexpr int64_t kNormRunRows = 32;
inline constexpr int64_t kMaxNormBlocks = 32;

// On a GPU a block leaves its sums of both: two blocks for each of 132 multiprocessors.
inline constexpr int64_t kMaxNormSumBlocks = 264;

inline int64_t norm_rows_per_block(int64_t rows) {
  const int64_t even = (rows + kMaxNormBlocks - 1) / kMaxNormBlocks;
  return std::max<int64_t>(even, 16);
}
inline int64_t num_norm_blocks(int64_t rows) {
  const int64_t step = norm_rows_per_block(rows);
  return (rows + step - 1) / step;
}

}  // namespace zinc::kernels
