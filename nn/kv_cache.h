// nn/kv_cache.h: keys and values of the tokens that a model has already seen, for generation.
//
// A pass over new tokens adds theirs, layer by layer in the order of the model, and attends to all.
// Without gradients only. A model's results with the cache are those of a pass over all tokens but
// for rounding: products of other shapes may add in another order.
//
// Texts of unequal length end side by side: the shorter ones have padding at their front, whose
// keys no token sees. A token's position is its column less the padding of its row.
//
// For a decoder that attends to another text too, the cache also has the source: keys and values of
// what an encoder gave, per layer, which do not grow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace zinc::nn {

class KvCache {
 public:
  explicit KvCache(int64_t capacity);  // columns: tokens of a sequence with its padding, > 0

  int64_t capacity() const { return capacity_; }
  int64_t length() const { return length_; }  // columns that were seen

  struct Seen {
    Tensor keys, values;  // [B, length + T, features]; views that live as long as the cache
  };
  // For each layer of a pass in turn: keys, values [B, T, features] of T new tokens, outer strides
  // free. Memory for the capacity is taken at a layer's first call. Throws InvalidArgument where
  // they do not fit behind what is there, or gradients are enabled.
  Seen extend(const Tensor& keys, const Tensor& values);
  // Forgets tokens and source, and begins with another source, of these lengths ([B] i32, or
  // undefined: all its tokens). add_source() follows for each layer in turn: [B, T, features].
  void set_source(const Tensor& lengths);
  void add_source(const Tensor& keys, const Tensor& values);
  // Of the layer that was extended last. Throws InvalidArgument where there is none.
  const Seen& source() const;
  const Tensor& source_lengths() const { return source_lengths_; }
  // The end of a pass over T new tokens, in which every layer was extended.
  void advance(int64_t tokens);
  // No token was seen; also after a pass that threw. The memory stays, and the source. `padding`:
  // columns at the front of each row that are no tokens, [B], all smaller than the tokens of the
  // next pass; empty: none.
  void clear(std::span<const int32_t> padding = {});
  // Row i becomes a copy of what is row rows[i] now, tokens and source; there may be fewer or more
  // rows than before. Throws InvalidArgument for a row that there is not.
  void select(std::span<const int64_t> rows);

  // Of T new tokens, [B, T] i32; undefined where no row has padding.
  Tensor positions(int64_t tokens) const;
  Tensor first_keys(int64_t tokens) const;  // the column of the row's first token

 private:
  struct Layer {
    Tensor keys, values;  // [B, capacity, features]
  };
  Tensor selected(const Tensor& kept, const Tensor& rows) const;
  void select_source(std::span<const int64_t> rows);

  int64_t capacity_;
  int64_t length_ = 0;
  size_t next_layer_ = 0;
  std::vector<Layer> layers_;
  std::vector<int32_t> padding_;  // by row; empty: none
  std::vector<Seen> sources_;     // by layer
  std::vector<int64_t> texts_;    // by row: which of the texts of set_source() its source is
  Tensor source_lengths_;
};

}  // namespace zinc::nn
