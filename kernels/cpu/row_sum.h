// kernels/cpu/row_sum.h: sums of a row in the order of Note [Order of sums].
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/parallel.h"

namespace zinc::kernels::cpu {

inline constexpr int64_t kSumLanes = 16;
inline constexpr int64_t kSumBlock = 1024;  // elements that the lanes add one after the other
inline constexpr int kSumLevels = 40;       // levels of the tree over blocks

// value(i) summed over i in [begin, begin + n), n <= kSumBlock: in lanes, then a tree of lanes.
template <class Sum, class Value>
Sum sum_block(int64_t begin, int64_t n, Value&& value) {
  std::array<Sum, kSumLanes> lane{};
  for (int64_t i = 0; i < n; ++i) lane[static_cast<size_t>(i % kSumLanes)] += value(begin + i);
  for (size_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  }
  return lane[0];
}

// The binary tree over the blocks [begin, end) of one row by their indices; end > begin.
template <class Sum, class BlockSum>
Sum sum_tree(int64_t begin, int64_t end, BlockSum&& block_sum) {
  std::array<Sum, kSumLevels> partial{};
  for (int64_t k = begin; k < end; ++k) {
    Sum sum = block_sum(k);
    int level = 0;
    for (; (((k - begin) >> level) & 1) != 0; ++level) {
      sum = partial[static_cast<size_t>(level)] + sum;
    }
    partial[static_cast<size_t>(level)] = sum;
  }
  bool found = false;
  Sum total = Sum(0);
  for (int level = 0; level < kSumLevels; ++level) {
    if ((((end - begin) >> level) & 1) == 0) continue;
    total =
        found ? partial[static_cast<size_t>(level)] + total : partial[static_cast<size_t>(level)];
    found = true;
  }
  return total;
}

// The whole row of n elements; block_sum(k) sums block k. 0 for an empty row.
template <class Sum, class BlockSum>
Sum sum_row(int64_t n, BlockSum&& block_sum) {
  const int64_t blocks = (n + kSumBlock - 1) / kSumBlock;
  return blocks == 0 ? Sum(0) : sum_tree<Sum>(0, blocks, block_sum);
}

// The same, by several threads: they take aligned subtrees, so that the tree stays the same.
template <class Sum, class BlockSum>
Sum parallel_sum_row(int64_t n, BlockSum&& block_sum) {
  constexpr int64_t kMaxParts = 256;
  const int64_t blocks = (n + kSumBlock - 1) / kSumBlock;
  int64_t width = 16;  // blocks of a part, a power of two
  while (width * kMaxParts < blocks) width *= 2;
  if (blocks <= width) return sum_row<Sum>(n, block_sum);
  std::array<Sum, kMaxParts> part{};
  parallel_for(blocks, width, [&](int64_t begin, int64_t end) {
    part[static_cast<size_t>(begin / width)] = sum_tree<Sum>(begin, end, block_sum);
  });
  const int64_t parts = (blocks + width - 1) / width;
  return sum_tree<Sum>(0, parts, [&](int64_t k) { return part[static_cast<size_t>(k)]; });
}

}  // namespace zinc::kernels::cpu
