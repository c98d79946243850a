// kernels/cpu/attention_blocks.h: how the [Tq, Tk] plane of a head is cut into blocks, and pieces
// that forward and backward share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "core/context.h"
#include "kernels/attention_problem.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/block_product.h"

namespace zinc::kernels::cpu {

// Blocks of `rows` queries by `cols` keys, cut by the shape and the causal flag alone: a causal
// block ends at the last key that one of its queries may see, rounded up to kColumnUnit. Windows
// and masks that depend on values only make whole blocks be skipped, which changes no bit.
struct AttentionCut {
  static constexpr int64_t kColumnUnit = 64;
  int64_t rows, cols;

  int64_t num_row_blocks(const AttentionProblem& p) const { return (p.Tq + rows - 1) / rows; }
  int64_t rows_of(const AttentionProblem& p, int64_t row_block) const {
    return std::min(rows, p.Tq - row_block * rows);
  }
  // One past the last key that the row block may see by the causal mask.
  int64_t limit(const AttentionProblem& p, int64_t row_block) const {
    if (!p.mask.causal) return p.Tk;
    const int64_t last = p.position(row_block * rows + rows_of(p, row_block) - 1) + 1;
    return std::clamp<int64_t>((last + kColumnUnit - 1) / kColumnUnit * kColumnUnit, 0, p.Tk);
  }
  // The first that a window lets the row block see.
  int64_t first_col_block(const AttentionProblem& p, int64_t row_block) const {
    if (p.mask.window == 0) return 0;
    return std::max<int64_t>(0, p.position(row_block * rows) - p.mask.window + 1) / cols;
  }
  int64_t num_col_blocks(const AttentionProblem& p, int64_t row_block) const {
    return (limit(p, row_block) + cols - 1) / cols;
  }
  int64_t cols_of(const AttentionProblem& p, int64_t row_block, int64_t col_block) const {
    return std::min(cols, limit(p, row_block) - col_block * cols);
  }
};

// Products that are made once for every extent of block that occurs.
template <class Products>
class ProductsByExtent {
 public:
  // make(rows, cols) is called for every pair of extents that the cut gives.
  template <class Make>
  ProductsByExtent(const AttentionProblem& p, const AttentionCut& cut, Make&& make) {
    for (int64_t i = 0; i < cut.num_row_blocks(p); ++i) {
      for (int64_t j = cut.first_col_block(p, i); j < cut.num_col_blocks(p, i); ++j) {
        const std::pair key{cut.rows_of(p, i), cut.cols_of(p, i, j)};
        if (!products_.contains(key)) products_.emplace(key, make(key.first, key.second));
      }
    }
  }
  const Products& at(int64_t rows, int64_t cols) const { return products_.at({rows, cols}); }
  int64_t scratch_bytes() const {
    int64_t bytes = 0;
    for (const auto& [key, products] : products_) {
      bytes = std::max(bytes, products.scratch_bytes());
    }
    return (bytes + 63) / 64 * 64;
  }

 private:
  std::map<std::pair<int64_t, int64_t>, Products> products_;
};

// Hands out parts of one thread's workspace, each aligned to 64 bytes. With a null base it only
// counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    T* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return part;
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

// Elements from row to row of a block buffer: an odd number of cache lines.
inline int64_t block_stride(int64_t cols, int64_t element_bytes) {
  const int64_t line = 64 / element_bytes;
  const int64_t lines = (cols + line - 1) / line;
  return (lines | 1) * line;
}

inline const std::byte* element(const HeadsView& view, int64_t at, DType dtype) {
  return static_cast<const std::byte*>(view.data) + at * size_of(dtype);
}
inline std::byte* target_element(const HeadsView& view, int64_t at, DType dtype) {
  return const_cast<std::byte*>(element(view, at, dtype));
}

// The keys that rows [i, i + rows) see of the columns [j, j + cols), counted from j. Returns
// whether there are any.
inline bool keys_in_block(const AttentionProblem& p, int64_t b, int64_t i, int64_t rows, int64_t j,
                          int64_t cols, KeyRange* keys) {
  bool any = false;
  for (int64_t r = 0; r < rows; ++r) {
    const KeyRange all = p.keys_of(b, i + r);
    keys[r] = {std::max<int64_t>(all.begin - j, 0), std::min(all.end - j, cols)};
    any = any || !keys[r].empty();
  }
  return any;
}

// How the causal mask cuts the block of queries from i on and keys from j on.
inline CausalCut causal_cut(const AttentionProblem& p, CausalCut::Plane plane, int64_t i,
                            int64_t j) {
  if (!p.mask.causal) return {};
  return {.plane = plane, .diagonal = p.position(i) - j};
}

// The fields of a ScoreBlock that the position in the problem decides.
inline ScoreBlock score_block(const AttentionProblem& p, int64_t b, int64_t h, int64_t i,
                              int64_t rows, int64_t j, int64_t cols, const KeyRange* keys) {
  ScoreBlock block{.rows = rows,
                   .cols = cols,
                   .keys = keys,
                   .scale = static_cast<float>(p.scale),
                   .softcap = static_cast<float>(p.softcap),
                   .distance = p.position(i) - j,
                   .dropout = p.dropout.probability,
                   .dropout_key = p.dropout.key,
                   .dropout_element = p.dropout_element(b, h, i, j),
                   .dropout_step = static_cast<uint64_t>(p.Tk),
                   .dtype = p.dtype};
  if (p.mask.alibi_slopes) block.slope = p.mask.alibi_slopes.data_as<float>()[h];
  if (p.mask.bias) {
    const AttentionProblem::BiasRows bias = p.bias_rows(p.mask.bias);
    block.bias = p.mask.bias.data_as<float>() + bias.at(b, h, i) + j;
    block.bias_stride = bias.row;
  }
  return block;
}

}  // namespace zinc::kernels::cpu
