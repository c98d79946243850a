#include "nn/attention/kv_cache.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "autograd/mode.h"
#include "autograd/ops/gather_rows.h"
#include "autograd/view_shapes.h"
#include "core/error.h"

namespace zinc::nn {
namespace {

Tensor tensor_of_rows(std::span<const int64_t> rows) {
  return Tensor::from<int64_t>(rows, Shape{std::ssize(rows)}, DType::i32);
}

// Rows of [B, T, C].
Tensor rows_of(const Tensor& x, const Tensor& rows) {
  const int64_t B = x.dim(0), T = x.dim(1), C = x.dim(2);
  return autograd::gather_rows(x.reshape_view(Shape{B, T * C}), rows)
      .reshape_view(Shape{rows.dim(0), T, C});
}

}  // namespace

KvCache::KvCache(int64_t capacity) : capacity_(capacity) {
  require(capacity > 0, "KvCache: the capacity must be positive, not ", capacity);
}

KvCache::Seen KvCache::extend(const Tensor& keys, const Tensor& values, int64_t heads) {
  require(!autograd::gradients_enabled(),
          "KvCache: only under NoGrad; what is kept has no history");
  require(keys.rank() == 3 && keys.shape() == values.shape(), "KvCache: keys ", keys.shape(),
          " and values ", values.shape(), " must be [B, T, features] both");
  require(heads > 0 && keys.dim(2) % heads == 0, "KvCache: keys ", keys.shape(), " do not hold ",
          heads, " heads");
  const int64_t tokens = keys.dim(1), size = keys.dim(2) / heads;
  require(length_ + tokens <= capacity_, "KvCache: ", tokens, " tokens after ", length_,
          " are more than its capacity of ", capacity_);
  if (next_layer_ == layers_.size()) layers_.emplace_back();
  Layer& layer = layers_[next_layer_];
  if (!layer.keys.defined() || (length_ == 0 && layer.keys.dim(0) != keys.dim(0))) {
    const Shape shape{keys.dim(0), heads, capacity_, size};
    layer = {};  // frees the old rows first
    layer = {.keys = Tensor::empty(shape, keys.dtype()),
             .values = Tensor::empty(shape, values.dtype())};
  }
  require(
      keys.dim(0) == layer.keys.dim(0) && heads == layer.keys.dim(1) && size == layer.keys.dim(3),
      "KvCache: keys of shape ", keys.shape(), " do not go on from ", layer.keys.shape());
  ++next_layer_;
  const auto append = [&](const Tensor& from, const Tensor& to) {
    const Tensor rows = to.narrow_view(2, length_, tokens);
    autograd::copy_to_heads(from, rows);
    return to.narrow_view(2, 0, length_ + tokens);
  };
  return {.keys = append(keys, layer.keys), .values = append(values, layer.values)};
}

void KvCache::set_source(const Tensor& hidden, const Tensor& lengths) {
  require(!autograd::gradients_enabled(),
          "KvCache: only under NoGrad; what is kept has no history");
  clear();
  require(hidden.rank() == 3, "KvCache: a source is [B, T, features], not ", hidden.shape());
  sources_.clear();
  texts_.resize(static_cast<size_t>(hidden.dim(0)));
  std::iota(texts_.begin(), texts_.end(), int64_t{0});
  source_hidden_ = hidden;
  source_lengths_ = lengths;
}

const Tensor& KvCache::source_hidden() const {
  require(!texts_.empty(),
          "KvCache: there is no source; let the model encode() the texts into the cache first");
  return source_hidden_;
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
  if (sources_.size() == layers_.size()) source_hidden_ = {};
}

void KvCache::clear(std::span<const int32_t> padding) {
  next_layer_ = 0;
  length_ = 0;
  const bool is_padded = std::ranges::any_of(padding, [](int32_t columns) { return columns > 0; });
  padding_.assign(padding.begin(), is_padded ? padding.end() : padding.begin());
}

// Copies only the columns that were seen, so that the cost of a row depends on its tokens.
Tensor KvCache::selected(const Tensor& kept, std::span<const int64_t> rows) const {
  const int64_t B = kept.dim(0), heads = kept.dim(1), size = kept.dim(3);
  std::vector<int64_t> lines;  // rows of [B * heads, capacity * size]
  for (const int64_t row : rows) {
    for (int64_t h = 0; h < heads; ++h) lines.push_back(row * heads + h);
  }
  const Tensor found = autograd::gather_rows(
      kept.reshape_view(Shape{B * heads, capacity_ * size}).narrow_view(1, 0, length_ * size),
      tensor_of_rows(lines));
  const int64_t count = std::ssize(rows);
  Tensor result =
      count == B ? kept : Tensor::empty(Shape{count, heads, capacity_, size}, kept.dtype());
  result.narrow_view(2, 0, length_)
      .copy_from(found.reshape_view(Shape{count, heads, length_, size}));
  return result;
}

void KvCache::select_source(std::span<const int64_t> rows) {
  std::vector<int64_t> texts;
  for (const int64_t row : rows) texts.push_back(texts_[static_cast<size_t>(row)]);
  if (texts == texts_) return;
  const Tensor index = tensor_of_rows(rows);
  if (source_hidden_.defined()) source_hidden_ = rows_of(source_hidden_, index);
  for (Seen& source : sources_) {
    source = {.keys = rows_of(source.keys, index), .values = rows_of(source.values, index)};
  }
  if (source_lengths_.defined()) {
    const std::vector<int64_t> before = source_lengths_.to_vector<int64_t>();
    std::vector<int64_t> after;
    for (const int64_t row : rows) after.push_back(before[static_cast<size_t>(row)]);
    source_lengths_ = tensor_of_rows(after);
  }
  texts_ = std::move(texts);
}

void KvCache::select(std::span<const int64_t> rows) {
  const int64_t count = length_ > 0 ? layers_.front().keys.dim(0) : std::ssize(texts_);
  bool stays = std::ssize(rows) == count;
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    require(row >= 0 && row < count, "KvCache: there is no row ", row, " among ", count);
    stays = stays && row == i;
  }
  if (stays) return;
  if (!texts_.empty()) select_source(rows);
  if (!padding_.empty()) {
    std::vector<int32_t> padding;
    for (const int64_t row : rows) padding.push_back(padding_[static_cast<size_t>(row)]);
    padding_ = std::move(padding);
  }
  if (length_ == 0) return;
  for (Layer& layer : layers_) {
    layer.keys = selected(layer.keys, rows);
    layer.values = selected(layer.values, rows);
  }
}

Tensor KvCache::positions(int64_t tokens) const {
  if (padding_.empty()) return {};
  std::vector<int32_t> values;
  for (const int32_t columns : padding_) {
    for (int64_t t = 0; t < tokens; ++t) {
      values.push_back(static_cast<int32_t>(std::max<int64_t>(0, length_ + t - columns)));
    }
  }
  return Tensor::from<int32_t>(values, Shape{std::ssize(padding_), tokens});
}

Tensor KvCache::first_keys(int64_t tokens) const {
  if (padding_.empty()) return {};
  std::vector<int32_t> values;
  for (const int32_t columns : padding_) {
    values.insert(values.end(), static_cast<size_t>(tokens), columns);
  }
  return Tensor::from<int32_t>(values, Shape{std::ssize(padding_), tokens});
}

}  // namespace zinc::nn
