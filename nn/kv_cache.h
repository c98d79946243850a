// nn/kv_cache.h: keys and values of the tokens that a model has already seen, for generation.
//
// A pass over new tokens adds theirs, layer by layer in the order of the model, and attends to all.
// Without gradients only. A model's results with the cache are those of a pass over all tokens but
// for rounding: products of other shapes may add in another order.
//
// For a decoder that attends to another text too, the cache also has the source: keys and values of
// what an encoder gave, per layer, which do not grow.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace zinc::nn {

class KvCache {
 public:
  explicit KvCache(int64_t capacity);  // tokens of a sequence, > 0

  int64_t capacity() const { return capacity_; }
  int64_t length() const { return length_; }  // tokens seen; the position of the next one

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
  // No token was seen; also after a pass that threw. The memory stays, and the source.
  void clear();

 private:
  struct Layer {
    Tensor keys, values;  // [B, capacity, features]
  };
  int64_t capacity_;
  int64_t length_ = 0;
  size_t next_layer_ = 0;
  std::vector<Layer> layers_;
  std::vector<Seen> sources_;  // by layer
  Tensor source_lengths_;
};

}  // namespace zinc::nn
