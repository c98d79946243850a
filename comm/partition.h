// comm/partition.h: how an array is divided among the ranks of a group.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zinc::comm {

struct Part {
  int64_t begin = 0;
  int64_t count = 0;
};

// Rank `rank`'s part of `n` elements. Parts are contiguous, in the order of ranks, ceil(n / size)
// elements each until all are given.
inline Part part_of(int64_t n, int size, int rank) {
  const int64_t width = (n + size - 1) / size;
  const int64_t begin = std::min(n, width * rank);
  return {.begin = begin, .count = std::min(n - begin, width)};
}

}  // namespace zinc::comm
