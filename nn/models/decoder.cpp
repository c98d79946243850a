#include "nn/models/decoder.h"

#include <algorithm>

#include "autograd/ops/cast.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/split.h"
#include "core/error.h"

namespace zinc::nn {

void require_sequence(const Model& model, const Tensor& ids) {
  require(ids.rank() == 2, model.model_type(), ": token ids must be [B, T], not ", ids.shape());
  require(ids.dim(1) >= 1 && ids.dim(1) <= model.max_sequence(), model.model_type(),
          ": sequences must have 1 to ", model.max_sequence(), " tokens, not ", ids.dim(1),
          "; cut them to ", model.max_sequence());
}

void require_room(const Model& model, const Tensor& ids, const KvCache& cache) {
  require_sequence(model, ids);
  const int64_t last = cache.length() + ids.dim(1);
  require(last <= cache.capacity() && last <= model.max_sequence(), model.model_type(), ": ",
          ids.dim(1), " tokens after ", cache.length(), " in the cache are more than its ",
          cache.capacity(), " or the model's ", model.max_sequence(), " positions");
}

int64_t start_of(const AttentionScope& scope) {
  return scope.cache == nullptr ? 0 : scope.cache->length();
}

Tensor last_logits(const Tensor& hidden, const autograd::Weight& head) {
  const Tensor last = autograd::contiguous(autograd::narrow(hidden, 1, hidden.dim(1) - 1, 1));
  const Tensor rows = autograd::reshape(last, Shape{hidden.dim(0), hidden.dim(2)});
  return autograd::cast(autograd::linear(rows, head), DType::f32);
}

Tensor all_logits(const Tensor& hidden, const autograd::Weight& head) {
  return autograd::cast(autograd::linear(hidden, head), DType::f32);
}

AttentionScope scope_of(const Batch& batch) {
  return {.lengths = batch.find("lengths"), .document_starts = batch.find("document_starts")};
}

double decoder_flops_per_token(int64_t multiplied_weights, int64_t num_layers, int64_t width,
                               int64_t sequence) {
  return 6.0 * static_cast<double>(multiplied_weights) + 6.0 * static_cast<double>(num_layers) *
                                                             static_cast<double>(width) *
                                                             static_cast<double>(sequence);
}

double causal_attention_flops(int64_t width, int64_t sequence, int64_t window) {
  const auto T = static_cast<double>(sequence);
  const auto seen = static_cast<double>(std::min(window, sequence));
  const double mean_keys = seen * (1.0 - seen / (2.0 * T));  // T / 2 where all are seen
  return 12.0 * static_cast<double>(width) * mean_keys;
}

}  // namespace zinc::nn
