// train/cached_logits.h: the next token's logits with keys and values kept from call to call.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/kv_cache.h"
#include "nn/model.h"

namespace zinc::train {

// A NextLogits for generate(). Ids that begin with all that were seen before cost a pass over the
// new ones alone; others (another text, or a window that has slid: every position is another then)
// a pass over all. One sequence at a time, without gradients.
class CachedLogits {
 public:
  // Throws InvalidArgument for a model that is no nn::CachedCausalLm, or has no longest sequence.
  // `capacity`: tokens at most; 0: the model's longest sequence.
  explicit CachedLogits(nn::Model& model, int64_t capacity = 0);
  // Of the answer to the one text of a batch, which is read now: ids begin with
  // decoder_start_token(), and are `capacity` at most.
  CachedLogits(nn::EncoderDecoderLm& model, const nn::Batch& text, int64_t capacity);

  Tensor operator()(const Tensor& ids);                         // [1, T] i32 -> [1, V] f32
  int64_t tokens_computed() const { return tokens_computed_; }  // of all calls

 private:
  std::function<Tensor(const Tensor& ids, nn::KvCache& cache)> next_logits_;
  nn::KvCache cache_;
  std::vector<int64_t> seen_;
  int64_t tokens_computed_ = 0;
};

}  // namespace zinc::train
