// generate/cached_logits.h: the next token's logits with keys and values kept from call to call.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "generate/generate.h"
#include "nn/attention/kv_cache.h"
#include "nn/model.h"

namespace zinc::generate {

// A NextLogits for generate(), for texts of any lengths. If each text is its parent plus the same
// number of tokens, a call costs a pass over the new tokens alone. Otherwise it costs a pass over
// all tokens, with the shorter texts padded at their front: for a first text, for another text, and
// for a window that has slid, in which every position is another. Without gradients.
class CachedLogits {
 public:
  // `capacity`: the largest number of tokens of a text; 0: the model's longest sequence. Throws
  // InvalidArgument for a model that is no nn::CachedCausalLm, or that has no longest sequence.
  explicit CachedLogits(nn::Model& model, int64_t capacity = 0);
  // For answers to the texts of a batch. The texts are read now. Answers begin with
  // decoder_start_token(), have equal lengths, and have at most `capacity` tokens. In the first
  // call an answer's parent is the row of its text.
  CachedLogits(nn::EncoderDecoderLm& model, const nn::Batch& texts, int64_t capacity);

  Tensor operator()(std::span<const OpenText> texts);           // -> [B, V] f32
  int64_t tokens_computed() const { return tokens_computed_; }  // in all calls and texts

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

}  // namespace zinc::generate
