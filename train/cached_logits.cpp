#include "train/cached_logits.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc::train {

CachedLogits::CachedLogits(nn::Model& model, int64_t capacity)
    : cache_(capacity > 0 ? capacity : model.max_sequence()) {
  next_logits_ = [&lm =
                      nn::require_interface<nn::CachedCausalLm>(model, "generation with a cache")](
                     const Tensor& ids, nn::KvCache& cache) { return lm.next_logits(ids, cache); };
}

CachedLogits::CachedLogits(nn::EncoderDecoderLm& model, const nn::Batch& text, int64_t capacity)
    : next_logits_([&model](const Tensor& ids, nn::KvCache& cache) {
        return model.next_logits(ids, cache);
      }),
      cache_(capacity) {
  require(text.rows() == 1, "CachedLogits: one text at a time, not ", text.rows());
  model.encode(text, cache_);
}

Tensor CachedLogits::operator()(const Tensor& ids) {
  require(ids.rank() == 2 && ids.dim(0) == 1, "CachedLogits: ids must be [1, T], not ",
          ids.shape());
  std::vector<int64_t> tokens = ids.to_vector<int64_t>();
  const bool goes_on =
      seen_.size() < tokens.size() && std::equal(seen_.begin(), seen_.end(), tokens.begin());
  if (!goes_on) cache_.clear();
  seen_.clear();  // in case of an error
  const int64_t known = cache_.length();
  const int64_t fresh = ids.dim(1) - known;
  tokens_computed_ += fresh;
  try {
    Tensor logits = next_logits_(ids.narrow_view(1, known, fresh), cache_);
    seen_ = std::move(tokens);
    return logits;
  } catch (...) {
    cache_.clear();
    throw;
  }
}

}  // namespace zinc::train
