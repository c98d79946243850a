// train/cached_logits.h: the next token's logits with keys and values kept from call to call.
#pragma once

#include <cstdint>
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
  explicit CachedLogits(nn::Model& model, int64_t capacity = 0)
      : model_(nn::require_interface<nn::CachedCausalLm>(model, "generation with a cache")),
        cache_(capacity > 0 ? capacity : model.max_sequence()) {}

  Tensor operator()(const Tensor& ids);                         // [1, T] i32 -> [1, V] f32
  int64_t tokens_computed() const { return tokens_computed_; }  // of all calls

 private:
  nn::CachedCausalLm& model_;
  nn::KvCache cache_;
  std::vector<int64_t> seen_;
  int64_t tokens_computed_ = 0;
};

}  // namespace zinc::train
