#include "core/block_layout.h"

#include <algorithm>

#include "core/error.h"

namespace zinc {

BlockLayout::BlockLayout(int64_t block, int64_t heads, int64_t blocks,
                         std::span<const uint8_t> seen)
    : block_(block),
      heads_(heads),
      blocks_(blocks),
      words_per_row_((blocks + kBitsPerWord - 1) / kBitsPerWord) {
  require(takes_block(block), "block layout: a block has 16, 32, 64 or 128 positions, not ", block);
  require(heads > 0 && blocks > 0 && std::ssize(seen) == heads * blocks * blocks,
          "block layout: ", seen.size(), " values are no [", heads, ", ", blocks, ", ", blocks,
          "], heads x blocks of queries x blocks of keys");
  words_.assign(static_cast<size_t>(heads * blocks * words_per_row_), 0);
  for (int64_t row = 0; row < heads * blocks; ++row) {
    const auto values =
        seen.subspan(static_cast<size_t>(row * blocks), static_cast<size_t>(blocks));
    require(std::ranges::any_of(values, [](uint8_t value) { return value != 0; }),
            "block layout: the queries of block ", row % blocks, " of head ", row / blocks,
            " see no block of keys; let every block see one, such as itself");
    for (int64_t column = 0; column < blocks; ++column) {
      const uint32_t bit = values[static_cast<size_t>(column)] != 0 ? 1u : 0u;
      words_[static_cast<size_t>(row * words_per_row_ + column / kBitsPerWord)] |=
          static_cast<int32_t>(bit << (column % kBitsPerWord));
    }
  }
}

bool BlockLayout::has_equal_rows(int64_t h, int64_t row, int64_t other) const {
  return std::equal(row_of(h, row), row_of(h, row) + words_per_row_, row_of(h, other));
}

int64_t BlockLayout::num_seen() const {
  int64_t seen = 0;
  for (const int32_t word : words_) seen += std::popcount(static_cast<uint32_t>(word));
  return seen;
}

int64_t BlockLayout::next(int64_t h, int64_t row, int64_t column, bool seen) const {
  const int32_t* words = row_of(h, row);
  while (column < blocks_) {
    const auto word = static_cast<uint32_t>(words[column / kBitsPerWord]);
    const int64_t bit = column % kBitsPerWord;
    const uint32_t wanted = (seen ? word : ~word) >> bit;
    if (wanted != 0) return std::min(column + std::countr_zero(wanted), blocks_);
    column += kBitsPerWord - bit;
  }
  return blocks_;
}

}  // namespace zinc
