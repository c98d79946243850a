// comm/partition.h: how arrays are divided among the ranks of a group.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"

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

// Where the blocks of an all_to_all lie in its buffers, by rank.
struct AllToAllBlocks {
  std::vector<Part> in, out;
};

// `args` have passed the checks of comm/arguments.h.
inline AllToAllBlocks blocks_of(const AllToAll& args, int size) {
  const auto one_behind_the_other = [](std::span<const int64_t> counts) {
    std::vector<Part> parts;
    parts.reserve(counts.size());
    int64_t begin = 0;
    for (const int64_t count : counts) {
      parts.push_back({.begin = begin, .count = count});
      begin += count;
    }
    return parts;
  };
  if (args.counts != nullptr) {
    return {.in = one_behind_the_other(args.counts->sent),
            .out = one_behind_the_other(args.counts->received)};
  }
  const std::vector<int64_t> equal(static_cast<size_t>(size), args.in.numel() / size);
  return {.in = one_behind_the_other(equal), .out = one_behind_the_other(equal)};
}

}  // namespace zinc::comm
