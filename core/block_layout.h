// core/block_layout.h: which blocks of keys the blocks of queries see (Child et al. 2019,
// "Generating Long Sequences with Sparse Transformers", section 5).
//
// A sequence is cut into blocks of `block` positions. For each head, a layout says of every pair of
// a block of queries and a block of keys whether the queries see the keys. A layout is made once
// and never changes; kernels, nodes and layers share it.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace zinc {

class BlockLayout {
 public:
  static constexpr int64_t kSmallestBlock = 16, kLargestBlock = 128;
  static constexpr int64_t kBitsPerWord = 32;
  // Whether so many positions can be a block: 16, 32, 64 or 128.
  static constexpr bool takes_block(int64_t block) {
    return block >= kSmallestBlock && block <= kLargestBlock &&
           std::has_single_bit(static_cast<uint64_t>(block));
  }

  // `seen`: [heads, n, n] for n = `blocks`, row-major, rows of queries; non-zero: seen. heads 1:
  // the same for all heads. Throws InvalidArgument for another size of block, another number of
  // values, or a row in which no block is seen.
  BlockLayout(int64_t block, int64_t heads, int64_t blocks, std::span<const uint8_t> seen);

  int64_t block() const { return block_; }
  int64_t heads() const { return heads_; }
  int64_t blocks() const { return blocks_; }  // n
  int64_t tokens() const { return block_ * blocks_; }
  int64_t words_per_row() const { return words_per_row_; }
  // [heads, n, words_per_row()]: bit c % 32 of word c / 32 of a row says whether block c is seen.
  const std::vector<int32_t>& words() const { return words_; }
  // The layout's own head for head h.
  int64_t head_of(int64_t h) const { return heads_ == 1 ? 0 : h; }
  bool sees(int64_t h, int64_t row, int64_t column) const {
    const auto word = static_cast<uint32_t>(row_of(h, row)[column / kBitsPerWord]);
    return (word >> (column % kBitsPerWord) & 1u) != 0;
  }
  bool has_equal_rows(int64_t h, int64_t row, int64_t other) const;
  int64_t num_seen() const;  // blocks of all heads() heads

  // visit(begin, end) for every run of neighbouring blocks that are seen in a row, in order.
  template <class Visit>
  void for_each_run(int64_t h, int64_t row, const Visit& visit) const {
    for (int64_t begin = next(h, row, 0, true); begin < blocks_;) {
      const int64_t end = next(h, row, begin, false);
      visit(begin, end);
      begin = next(h, row, end, true);
    }
  }

 private:
  const int32_t* row_of(int64_t h, int64_t row) const {
    return words_.data() + (head_of(h) * blocks_ + row) * words_per_row_;
  }
  // The first block from `column` on that is seen, or is not; blocks() where there is none.
  int64_t next(int64_t h, int64_t row, int64_t column, bool seen) const;

  int64_t block_, heads_, blocks_, words_per_row_;
  std::vector<int32_t> words_;
};

using BlockLayoutPtr = std::shared_ptr<const BlockLayout>;

}  // namespace zinc
