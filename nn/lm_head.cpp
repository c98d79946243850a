#include "nn/lm_head.h"

#include "autograd/ops/cast.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/split.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {

LmHead::LmHead(Module& parent, std::string name, Embedding& embedding, bool tied,
               const autograd::Initializer& initializer)
    : embedding_(embedding) {
  if (tied) return;
  const Shape table = embedding.weight().shape();
  layer_.emplace(parent, std::move(name),
                 LinearOptions{.in = table[1],
                               .out = table[0],
                               .bias = false,
                               .initializer = initializer,
                               .split = Split::columns});
}

Tensor LmHead::loss(const Tensor& hidden, const Tensor& labels) {
  if (layer_) return layer_->cross_entropy(hidden, labels);
  if (embedding_.is_sliced()) {
    return shared_cross_entropy(*embedding_.tensor_ranks(), hidden, embedding_.weight(), labels);
  }
  return autograd::linear_cross_entropy(hidden, embedding_.weight(), labels);
}

Tensor LmHead::logits(const Tensor& hidden) {
  const Tensor logits =
      layer_ ? layer_->forward(hidden) : autograd::linear(hidden, embedding_.weight());
  const Tensor wide = autograd::cast(logits, DType::f32);
  if (embedding_.tensor_ranks() == nullptr) return wide;
  const Parameter& weight = layer_ ? layer_->weight() : embedding_.weight();
  return weight.slice() ? embedding_.tensor_ranks()->join(wide, weight.whole_shape()[0]) : wide;
}

TiedHead::TiedHead(Embedding& embedding, Parameter& bias) : embedding_(embedding), bias_(bias) {
  bias.slice_over_ranks({bias.whole_shape()[0]});
}

Tensor TiedHead::loss(const Tensor& hidden, const Tensor& labels) {
  if (embedding_.is_sliced()) {
    return shared_cross_entropy(*embedding_.tensor_ranks(), hidden, embedding_.weight(), labels,
                                bias_);
  }
  return autograd::linear_cross_entropy(hidden, embedding_.weight(), labels, bias_);
}

Tensor TiedHead::logits(const Tensor& hidden) {
  const Tensor logits = autograd::linear(hidden, embedding_.weight(), bias_);
  if (!embedding_.is_sliced()) return logits;
  return embedding_.tensor_ranks()->join(logits, bias_.whole_shape()[0]);
}

Tensor LmHead::last_logits(const Tensor& hidden) {
  const Tensor last = autograd::contiguous(autograd::narrow(hidden, 1, hidden.dim(1) - 1, 1));
  return logits(autograd::reshape(last, Shape{hidden.dim(0), hidden.dim(2)}));
}

}  // namespace zinc::nn
