#include "nn/decoder.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc::nn {
namespace {

// Sequences are whole while it lives.
class WholeSequences {
 public:
  WholeSequences(SequenceRanks*& ranks, bool& shares_tokens)
      : ranks_(ranks),
        shared_by_(std::exchange(ranks, nullptr)),
        shares_(shares_tokens),
        shared_(std::exchange(shares_tokens, false)) {}
  ~WholeSequences() {
    ranks_ = shared_by_;
    shares_ = shared_;
  }
  WholeSequences(const WholeSequences&) = delete;
  WholeSequences& operator=(const WholeSequences&) = delete;

 private:
  SequenceRanks*& ranks_;
  SequenceRanks* shared_by_;
  bool& shares_;
  bool shared_;
};

// Tensor ranks share tokens while it lives. Null: there are none, or they do not.
class SharedTokens {
 public:
  explicit SharedTokens(TensorRanks* ranks) : ranks_(ranks) {
    if (ranks_ != nullptr) ranks_->share_tokens(true);
  }
  ~SharedTokens() {
    if (ranks_ != nullptr) ranks_->share_tokens(false);
  }
  SharedTokens(const SharedTokens&) = delete;
  SharedTokens& operator=(const SharedTokens&) = delete;

 private:
  TensorRanks* ranks_;
};

// Throws InvalidArgument unless the cache has room for ids [B, T], and the model positions.
void require_room(const Model& model, const Tensor& ids, const KvCache& cache) {
  require_sequence(model, ids);
  const int64_t last = cache.length() + ids.dim(1);
  require(last <= cache.capacity() && last <= model.max_sequence(), model.model_type(), ": ",
          ids.dim(1), " tokens after ", cache.length(), " in the cache are more than its ",
          cache.capacity(), " or the model's ", model.max_sequence(), " positions");
}

}  // namespace

TensorList Decoder::stage(int64_t index, const Batch& batch, TensorList x) {
  const Tensor& ids = batch["input_ids"];
  require_sequence(*this, ids);
  const SharedTokens shared(shares_tokens_ ? tensor_ranks() : nullptr);
  AttentionScope scope = scope_of(batch);
  if (sequence_ != nullptr) {
    scope.sequence = sequence_;
    if (keeps_queries(scope)) {
      scope.positions = own_positions(*sequence_, ids.dim(0), ids.dim(1));
    } else {
      scope.start = token_runs(*sequence_, sequence_->rank(), ids.dim(1)).front().begin;
    }
  }
  if (index == 0) {
    // Rotary positions are distances: those of blocks need not begin anew with each document.
    if (const Tensor positions = batch.find("positions"); positions.defined()) {
      scope.positions = part_of_sequence(sequence_, positions);
    }
    return {embed(part_of_sequence(sequence_, ids), scope)};
  }
  if (is_block(index)) {
    return {block(index - 1, x[0], scope, terms(index - 1, ids.dim(1), x[0].dtype()))};
  }
  const Tensor hidden = final_norm(std::exchange(x[0], {}));
  return {head().loss(hidden, part_of_sequence(sequence_, batch["labels"]))};
}

NamedTensors Decoder::outputs(const Batch& batch) {
  const WholeSequences whole(sequence_, shares_tokens_);
  const Tensor hidden = final_norm(before_last_stage(*this, batch)[0]);
  return {{"logits", head().logits(hidden)}, {"hidden", hidden}};
}

Tensor Decoder::hidden(const Tensor& ids, KvCache* cache) {
  AttentionScope scope{.cache = cache};
  if (cache != nullptr) {
    scope.document_starts = cache->first_keys(ids.dim(1));
    scope.positions = cache->positions(ids.dim(1));
  }
  const int64_t count = cache == nullptr ? ids.dim(1) : cache->capacity();
  Tensor x = embed(ids, scope);
  for (int64_t i = 0; i < num_layers(); ++i) x = block(i, x, scope, terms(i, count, x.dtype()));
  return final_norm(x);
}

Tensor Decoder::next_logits(const Tensor& ids) { return head().last_logits(hidden(ids, nullptr)); }

Tensor Decoder::next_logits(const Tensor& ids, KvCache& cache) {
  require_room(*this, ids, cache);
  const Tensor logits = head().last_logits(hidden(ids, &cache));
  cache.advance(ids.dim(1));
  return logits;
}

void require_sequence(const Model& model, const Tensor& ids) {
  require(ids.rank() == 2, model.model_type(), ": token ids must be [B, T], not ", ids.shape());
  require(ids.dim(1) >= 1 && ids.dim(1) <= model.max_sequence(), model.model_type(),
          ": sequences must have 1 to ", model.max_sequence(), " tokens, not ", ids.dim(1),
          "; cut them to ", model.max_sequence());
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
