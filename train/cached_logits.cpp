#include "train/cached_logits.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc::train {

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
    Tensor logits = model_.next_logits(ids.narrow_view(1, known, fresh), cache_);
    seen_ = std::move(tokens);
    return logits;
  } catch (...) {
    cache_.clear();
    throw;
  }
}

}  // namespace zinc::train
