#include "nn/tensor_ranks.h"

#include "autograd/ops/value.h"

namespace zinc::nn {

Tensor enter(TensorRanks* ranks, const Tensor& x) { return ranks == nullptr ? x : ranks->enter(x); }

autograd::Weight own_weight(TensorRanks* ranks, autograd::Parameter& weight) {
  if (ranks == nullptr || !ranks->shares_tokens()) return weight;
  return ranks->spread(autograd::value(weight));
}

autograd::Weight own_weight(TensorRanks* ranks, autograd::Parameter* weight) {
  return weight == nullptr ? autograd::Weight() : own_weight(ranks, *weight);
}

Tensor own_tokens(const TensorRanks* ranks, const Tensor& x) {
  if (ranks == nullptr || !ranks->shares_tokens()) return x;
  const int64_t count = x.dim(1) / ranks->size();
  return x.narrow_view(1, ranks->rank() * count, count).clone();
}

}  // namespace zinc::nn
