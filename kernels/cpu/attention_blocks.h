// kernels/cpu/attention_blocks.h: how the [Tq, Tk] plane of a head is cut into blocks, and pieces
// that forward and backward share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "core/context.h"
#include "kernels/attention_problem.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/block_product.h"

namespace zinc::kernels::cpu {

// Some keys that a block of queries meets at a time: runs of keys in order, and the number of them.
// A chunk of several runs is copied together first.
struct KeyChunk {
  std::span<const KeyRange> runs;
  int64_t cols = 0;

  int64_t first() const { return runs.front().begin; }
  bool is_gathered() const { return runs.size() > 1; }
  // How many of the chunk's keys lie before `key`.
  int64_t columns_before(int64_t key) const;
};

// Blocks of `rows` queries by at most `cols` keys, cut by the shape, the causal flag and the layout
// alone: a causal block ends at the last key that one of its queries may see, rounded up to
// kColumnUnit. Windows and masks that depend on values only make whole blocks be skipped, which
// changes no bit. With a layout, a block has queries of one row of the layout, or of neighbouring
// rows that see the same, and chunks of keys that the row sees.
struct AttentionCut {
  static constexpr int64_t kColumnUnit = 64;
  int64_t rows, cols;
};

// The [Tq, Tk] planes of all heads of a problem, cut.
class AttentionBlocks {
 public:
  AttentionBlocks(const AttentionProblem& p, const AttentionCut& cut);

  // Queries [first, first + rows) of head `head`.
  struct Queries {
    int64_t head, first, rows;
    int64_t first_chunk, end_chunk;
  };
  // Of all heads, head by head.
  int64_t size() const { return std::ssize(queries_); }
  const Queries& operator[](int64_t block) const { return queries_[static_cast<size_t>(block)]; }
  // Blocks of the heads before `head`.
  int64_t begin_of_head(int64_t head) const { return begin_of_head_[static_cast<size_t>(head)]; }
  KeyChunk chunk(int64_t index) const;
  bool has_gathered_chunks() const { return has_gathered_chunks_; }

 private:
  struct Chunk {
    size_t first_run, num_runs;
    int64_t cols;
  };
  // Returns the end of the queries that begin at `first` and see the same.
  static int64_t end_of_rows(const AttentionProblem& p, const AttentionCut& cut, int64_t head,
                             int64_t first);
  void add_chunks(const AttentionProblem& p, const AttentionCut& cut, int64_t head, int64_t first,
                  int64_t end);

  std::vector<Queries> queries_;
  std::vector<int64_t> begin_of_head_;  // [H + 1]
  std::vector<Chunk> chunks_;
  std::vector<KeyRange> runs_;
  bool has_gathered_chunks_ = false;
};

// Products that are made once for every extent of block that occurs.
template <class Products>
class ProductsByExtent {
 public:
  // make(rows, cols, gathered) is called for every triple that the blocks have. `gathered`: the
  // keys and values are copies that lie side by side.
  template <class Make>
  ProductsByExtent(const AttentionBlocks& blocks, Make&& make) {
    for (int64_t i = 0; i < blocks.size(); ++i) {
      const AttentionBlocks::Queries& queries = blocks[i];
      for (int64_t j = queries.first_chunk; j < queries.end_chunk; ++j) {
        const KeyChunk chunk = blocks.chunk(j);
        const std::tuple key{queries.rows, chunk.cols, chunk.is_gathered()};
        if (!products_.contains(key)) products_.emplace(key, std::apply(make, key));
      }
    }
  }
  const Products& at(int64_t rows, const KeyChunk& chunk) const {
    return products_.at({rows, chunk.cols, chunk.is_gathered()});
  }
  int64_t scratch_bytes() const {
    int64_t bytes = 0;
    for (const auto& [key, products] : products_) {
      bytes = std::max(bytes, products.scratch_bytes());
    }
    return (bytes + 63) / 64 * 64;
  }

 private:
  std::map<std::tuple<int64_t, int64_t, bool>, Products> products_;
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

// The keys that rows [i, i + rows) see of a chunk, as columns of it. Returns whether there are any.
bool keys_in_chunk(const AttentionProblem& p, int64_t b, int64_t i, int64_t rows,
                   const KeyChunk& chunk, KeyRange* keys);

// How the causal mask cuts the block of queries from i on and of a chunk's keys.
inline CausalCut causal_cut(const AttentionProblem& p, CausalCut::Plane plane, int64_t i,
                            const KeyChunk& chunk) {
  if (!p.mask.causal || chunk.is_gathered()) return {};
  return {.plane = plane, .diagonal = p.position(i) - chunk.first()};
}

// The keys or values of a chunk: where they lie, or copied to `copy` [cols, D] if they are
// gathered.
const std::byte* rows_of_chunk(const AttentionProblem& p, const HeadsView& from, int64_t b,
                               int64_t head, const KeyChunk& chunk, std::byte* copy);
// The segments of a gathered chunk's columns, in `memory`.
std::span<const ScoreSegment> segments_of(const KeyChunk& chunk, ScoreSegment* memory);

// The fields of a ScoreBlock that the position in the problem decides. `segments`: memory for one
// of each run of a gathered chunk.
inline ScoreBlock score_block(const AttentionProblem& p, int64_t b, int64_t h, int64_t i,
                              int64_t rows, const KeyChunk& chunk, const KeyRange* keys,
                              ScoreSegment* segments) {
  const int64_t j = chunk.first();
  ScoreBlock block{.rows = rows,
                   .cols = chunk.cols,
                   .keys = keys,
                   .scale = static_cast<float>(p.scale),
                   .softcap = static_cast<float>(p.softcap),
                   .distance = p.position(i) - j,
                   .segments = segments_of(chunk, segments),
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
