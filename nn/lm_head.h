// nn/lm_head.h: from hidden states to the logits of a vocabulary, and their loss.
#pragma once

#include <optional>
#include <string>

#include "nn/embedding.h"
#include "nn/linear.h"

namespace zinc::nn {

// A layer without a bias, or the embedding's own table if the two are tied.
class LmHead {
 public:
  // The layer is a member of `parent`. `embedding` must outlive the head.
  LmHead(Module& parent, std::string name, Embedding& embedding, bool tied,
         const autograd::Initializer& initializer);

  // hidden [..., C], labels [...] -> scalar: the sum of the losses. The logits of the whole batch
  // are never stored. Labels of kIgnoredLabel add nothing.
  Tensor loss(const Tensor& hidden, const Tensor& labels);
  Tensor logits(const Tensor& hidden);       // [..., C] -> [..., V] f32
  Tensor last_logits(const Tensor& hidden);  // [B, T, C] -> [B, V] f32, at the last position

  bool is_tied() const { return !layer_; }
  Linear* layer() { return layer_ ? &*layer_ : nullptr; }  // null where tied

 private:
  Embedding& embedding_;
  std::optional<Linear> layer_;
};

// The head of a masked language model: the embedding's own table, and a bias for each class.
class TiedHead {
 public:
  // `embedding` and `bias` [V], a member of the model, must outlive the head. Ranks that share the
  // rows of the table share the bias.
  TiedHead(Embedding& embedding, Parameter& bias);

  Tensor loss(const Tensor& hidden, const Tensor& labels);  // as LmHead::loss()
  Tensor logits(const Tensor& hidden);                      // [..., C] -> [..., V]

 private:
  Embedding& embedding_;
  Parameter& bias_;
};

}  // namespace zinc::nn
