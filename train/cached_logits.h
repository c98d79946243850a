// train/cached_logits.h: the next token's logits with keys and values kept from call to call.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "nn/kv_cache.h"
#include "nn/model.h"
#include "train/generate.h"

namespace zinc::train {

// A NextLogits for generate(), of texts of any lengths. Where each text is its parent with as many
// tokens more, a call costs a pass over the new tokens alone; otherwise (a first text, another one,
// or a window that has slid: every position is another then) a pass over all, the shorter texts
// padded at their front. Without gradients.
class CachedLogits {
 public:
  // Throws InvalidArgument for a model that is no nn::CachedCausalLm, or has no longest sequence.
  // `capacity`: tokens of a text at most; 0: the model's longest sequence.
  explicit CachedLogits(nn::Model& model, int64_t capacity = 0);
  // Of the answers to the texts of a batch, which are read now: answers begin with
  // decoder_start_token(), all of one length, and are `capacity` at most. In the first call an
  // answer's parent is the text's row.
  CachedLogits(nn::EncoderDecoderLm& model, const nn::Batch& texts, int64_t capacity);

  Tensor operator()(std::span<const OpenText> texts);           // -> [B, V] f32
  int64_t tokens_computed() const { return tokens_computed_; }  // of all calls and texts

 private:
  int64_t tokens_more(std::span<const OpenText> texts) const;
  int64_t begin(std::span<const OpenText> texts);
  Tensor pass(std::span<const OpenText> texts, int64_t columns);

  std::function<Tensor(const Tensor& ids, nn::KvCache& cache)> next_logits_;
  nn::KvCache cache_;
  bool has_source_ = false;
  std::vector<std::vector<int32_t>> seen_;  // by row
  int64_t tokens_computed_ = 0;
};

}  // namespace zinc::train
