// nn/attention/kv_cache.h: keeps the keys and values of the tokens that a model has seen, for
// generation.
//
// A pass over new tokens adds their keys and values, layer by layer in the order of the model, and
// attends to all. The cache works without gradients only. Results equal those of a pass over all
// tokens up to rounding, because products of other shapes may add in another order.
//
// Texts of unequal length end at the same column. Shorter texts have padding at their front; no
// token sees the keys of padding. The position of a token is its column minus the padding of its
// row.
//
// For an encoder-decoder, the cache also keeps the source: per layer the keys and values of the
// encoder's output. The source does not grow.
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
    Tensor keys, values;  // [B, heads, length + T, D]; views that live as long as the cache. Of a
                          // source: [B, T, heads * D]
  };
  // Call for each layer of a pass in turn. keys, values: [B, T, heads * D] of T new tokens, outer
  // strides free. The first call of a layer allocates memory for the capacity. The rows of a head
  // lie side by side, since each pass reads them head by head. Throws InvalidArgument if the tokens
  // exceed the capacity, or if gradients are enabled.
  Seen extend(const Tensor& keys, const Tensor& values, int64_t heads);
  // Forgets tokens and source, and begins another source: the encoder's output [B, T, C]. lengths:
  // [B] i32, or undefined: all tokens. The first pass over tokens makes the keys and values of it,
  // [B, T, features], by add_source() for each layer behind its extend().
  void set_source(const Tensor& hidden, const Tensor& lengths);
  void add_source(const Tensor& keys, const Tensor& values);
  // The source of the layer that was extended last. Throws InvalidArgument if there is none.
  const Seen& source() const;
  bool has_source() const { return next_layer_ >= 1 && next_layer_ <= sources_.size(); }
  // The encoder's output; undefined once the keys and values of all layers are there. Throws
  // InvalidArgument if no source was set.
  const Tensor& source_hidden() const;
  const Tensor& source_lengths() const { return source_lengths_; }
  // Ends a pass over `tokens` new tokens, after every layer was extended.
  void advance(int64_t tokens);
  // Forgets all tokens, also after a pass that threw. Memory and source stay. `padding`: the number
  // of padding columns at the front of each row, [B], each smaller than the tokens of the next
  // pass; empty: none.
  void clear(std::span<const int32_t> padding = {});
  // Row i becomes a copy of the present row rows[i], tokens and source. The number of rows may
  // change. Throws InvalidArgument for a row that does not exist.
  void select(std::span<const int64_t> rows);

  // The positions of `tokens` new tokens: [B, T] i32. Undefined if no row has padding.
  Tensor positions(int64_t tokens) const;
  Tensor first_keys(int64_t tokens) const;  // likewise: the column of each row's first token

 private:
  struct Layer {
    Tensor keys, values;  // [B, heads, capacity, D]
  };
  Tensor selected(const Tensor& kept, std::span<const int64_t> rows) const;
  void select_source(std::span<const int64_t> rows);

  int64_t capacity_;
  int64_t length_ = 0;
  size_t next_layer_ = 0;
  std::vector<Layer> layers_;
  std::vector<int32_t> padding_;  // padding columns, by row; empty: none
  std::vector<Seen> sources_;     // by layer
  std::vector<int64_t> texts_;    // by row: the number of its source in set_source()
  Tensor source_hidden_;          // until the first pass has ended
  Tensor source_lengths_;
};

}  // namespace zinc::nn
