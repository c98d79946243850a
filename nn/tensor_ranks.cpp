#include "nn/tensor_ranks.h"

#include <algorithm>

#include "autograd/ops/cast.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/split.h"
#include "autograd/ops/value.h"
#include "core/error.h"

namespace zinc::nn {

Tensor TensorRanks::spread(const Tensor& x) {
  require_free_order();
  return spread_exactly(x);
}

Tensor TensorRanks::sum(const Tensor& part) {
  require_free_order();
  return sum_exactly(part);
}

void TensorRanks::require_free_order() const {
  if (!fixes_slices()) return;
  throw ConfigError(
      "\"determinism\": \"mesh\": the model has a layer that sums over as many parts as there are "
      "tensor ranks; take \"world\", or cut it into fixed slices (nn/tensor_ranks.h)");
}

Tensor enter(TensorRanks* ranks, const Tensor& x) {
  return ranks == nullptr || ranks->fixes_slices() ? x : ranks->enter(x);
}

autograd::Weight own_weight(TensorRanks* ranks, autograd::Parameter& weight) {
  if (ranks == nullptr || !ranks->shares_tokens()) return weight;
  return ranks->spread(autograd::value(weight));
}

autograd::Weight own_weight(TensorRanks* ranks, autograd::Parameter* weight) {
  return weight == nullptr ? autograd::Weight() : own_weight(ranks, *weight);
}

Tensor own_tokens(const TensorRanks* ranks, const Tensor& x) {
  if (ranks == nullptr || !ranks->shares_tokens()) return x;
  const int64_t B = x.dim(0), T = x.dim(1), S = ranks->size(), runs = ranks->token_runs(B, T);
  const int64_t run = T / (runs * S), width = x.numel() / std::max<int64_t>(1, B * T);
  Shape shape = x.shape();
  shape.set(1, runs * run);
  return x.narrow_view(1, 0, runs * S * run)
      .reshape_view(Shape{B, runs, S, run * width})
      .narrow_view(2, ranks->rank(), 1)
      .clone()
      .reshape_view(shape);
}

Tensor own_tokens_of(const TensorRanks* ranks, const Tensor& rows, int64_t B) {
  if (ranks == nullptr || !ranks->shares_tokens()) return rows;
  const int64_t T = rows.dim(0), S = ranks->size(), runs = ranks->token_runs(B, T);
  const int64_t run = T / (runs * S), C = rows.dim(1);
  const Tensor parts = autograd::reshape(rows, Shape{runs, S, run * C});
  return autograd::reshape(autograd::contiguous(autograd::narrow(parts, 1, ranks->rank(), 1)),
                           Shape{runs * run, C});
}

}  // namespace zinc::nn
