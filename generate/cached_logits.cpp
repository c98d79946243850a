#include "generate/cached_logits.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc::generate {
namespace {

int64_t longest_of(std::span<const OpenText> texts) {
  int64_t longest = 0;
  for (const OpenText& text : texts) longest = std::max(longest, std::ssize(text.tokens));
  return longest;
}

}  // namespace

CachedLogits::CachedLogits(nn::Model& model, int64_t capacity)
    : cache_(capacity > 0 ? capacity : model.max_sequence()) {
  next_logits_ = [&lm =
                      nn::require_interface<nn::CachedCausalLm>(model, "generation with a cache")](
                     const Tensor& ids, nn::KvCache& cache) { return lm.next_logits(ids, cache); };
}

CachedLogits::CachedLogits(nn::EncoderDecoderLm& model, const nn::Batch& texts, int64_t capacity)
    : next_logits_([&model](const Tensor& ids, nn::KvCache& cache) {
        return model.next_logits(ids, cache);
      }),
      cache_(capacity),
      has_source_(true),
      seen_(static_cast<size_t>(texts.rows())) {
  model.encode(texts, cache_);
}

// How many tokens more each text is than its parent, where all are as many, follow its parent's and
// fit behind them; else 0.
int64_t CachedLogits::tokens_more(std::span<const OpenText> texts) const {
  if (cache_.length() == 0) return 0;
  int64_t more = 0;
  for (const OpenText& text : texts) {
    if (text.parent < 0 || text.parent >= std::ssize(seen_)) return 0;
    const std::vector<int32_t>& parent = seen_[static_cast<size_t>(text.parent)];
    const int64_t own = std::ssize(text.tokens) - std::ssize(parent);
    if (own <= 0 || (more > 0 && own != more)) return 0;
    if (!std::ranges::equal(parent, text.tokens.first(parent.size()))) return 0;
    more = own;
  }
  return cache_.length() + more <= cache_.capacity() ? more : 0;
}

// Arranges the cache's rows as the texts' parents, or empties it. Returns how many columns the
// texts add.
int64_t CachedLogits::begin(std::span<const OpenText> texts) {
  const int64_t more = tokens_more(texts);
  if (more > 0 || has_source_) {
    std::vector<int64_t> rows;
    for (const OpenText& text : texts) {
      require(text.parent >= 0 && text.parent < std::ssize(seen_),
              "CachedLogits: a text goes on from row ", text.parent, " of ", seen_.size());
      rows.push_back(text.parent);
    }
    cache_.select(rows);
  }
  if (more > 0) return more;
  const int64_t longest = longest_of(texts);
  std::vector<int32_t> padding;
  for (const OpenText& text : texts) {
    padding.push_back(static_cast<int32_t>(longest - std::ssize(text.tokens)));
  }
  cache_.clear(padding);
  return longest;
}

// Shorter texts are preceded by their first token, which no token sees.
Tensor CachedLogits::pass(std::span<const OpenText> texts, int64_t columns) {
  std::vector<int32_t> ids;
  for (const OpenText& text : texts) {
    const int64_t own = std::min(columns, std::ssize(text.tokens));
    ids.insert(ids.end(), static_cast<size_t>(columns - own), text.tokens.front());
    ids.insert(ids.end(), text.tokens.end() - own, text.tokens.end());
    tokens_computed_ += own;
  }
  return next_logits_(Tensor::from<int32_t>(ids, {std::ssize(texts), columns}), cache_);
}

Tensor CachedLogits::operator()(std::span<const OpenText> texts) {
  require(!texts.empty(), "CachedLogits: there are no texts");
  for (const OpenText& text : texts) {
    require(!text.tokens.empty(), "CachedLogits: a text has no token");
  }
  try {
    Tensor logits = pass(texts, begin(texts));
    seen_.clear();
    for (const OpenText& text : texts) {
      seen_.emplace_back(text.tokens.begin(), text.tokens.end());
    }
    return logits;
  } catch (...) {
    cache_.clear();
    throw;
  }
}

}  // namespace zinc::generate
