#include "nn/kv_cache.h"

#include "autograd/mode.h"
#include "core/error.h"

namespace zinc::nn {

KvCache::KvCache(int64_t capacity) : capacity_(capacity) {
  require(capacity > 0, "KvCache: the capacity must be positive, not ", capacity);
}

KvCache::Seen KvCache::extend(const Tensor& keys, const Tensor& values) {
  require(!autograd::gradients_enabled(),
          "KvCache: only under NoGrad; what is kept has no history");
  require(keys.rank() == 3 && keys.shape() == values.shape(), "KvCache: keys ", keys.shape(),
          " and values ", values.shape(), " must be [B, T, features] both");
  const int64_t tokens = keys.dim(1);
  require(length_ + tokens <= capacity_, "KvCache: ", tokens, " tokens after ", length_,
          " are more than its capacity of ", capacity_);
  if (next_layer_ == layers_.size()) {
    const Shape shape{keys.dim(0), capacity_, keys.dim(2)};
    layers_.push_back({.keys = Tensor::empty(shape, keys.dtype()),
                       .values = Tensor::empty(shape, values.dtype())});
  }
  Layer& layer = layers_[next_layer_];
  require(keys.dim(0) == layer.keys.dim(0) && keys.dim(2) == layer.keys.dim(2),
          "KvCache: keys of shape ", keys.shape(), " do not go on from ", layer.keys.shape());
  ++next_layer_;
  layer.keys.narrow_view(1, length_, tokens).copy_from(keys);
  layer.values.narrow_view(1, length_, tokens).copy_from(values);
  return {.keys = layer.keys.narrow_view(1, 0, length_ + tokens),
          .values = layer.values.narrow_view(1, 0, length_ + tokens)};
}

void KvCache::set_source(const Tensor& lengths) {
  require(!autograd::gradients_enabled(),
          "KvCache: only under NoGrad; what is kept has no history");
  clear();
  layers_.clear();  // another number of texts, perhaps
  sources_.clear();
  source_lengths_ = lengths;
}

void KvCache::add_source(const Tensor& keys, const Tensor& values) {
  require(keys.rank() == 3 && keys.shape() == values.shape(), "KvCache: a source's keys ",
          keys.shape(), " and values ", values.shape(), " must be [B, T, features] both");
  sources_.push_back({.keys = keys, .values = values});
}

const KvCache::Seen& KvCache::source() const {
  require(next_layer_ >= 1 && next_layer_ <= sources_.size(),
          "KvCache: there is no source for layer ", next_layer_,
          "; let the model encode() the texts into the cache first");
  return sources_[next_layer_ - 1];
}

void KvCache::advance(int64_t tokens) {
  bug_check(next_layer_ == layers_.size(), "KvCache: ", next_layer_, " of ", layers_.size(),
            " layers were extended");
  next_layer_ = 0;
  length_ += tokens;
}

void KvCache::clear() {
  next_layer_ = 0;
  length_ = 0;
}

}  // namespace zinc::nn
