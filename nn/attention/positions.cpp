#include "nn/attention/positions.h"

#include "autograd/ops/binary.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/relative_position.h"
#include "autograd/ops/split.h"
#include "autograd/ops/value.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {

Tensor embed_with_positions(Embedding& words, Embedding& positions, const Tensor& ids,
                            const AttentionScope& scope, const PositionedOptions& options) {
  const int64_t start = options.first + start_of(scope);
  if (!words.is_sliced()) {
    const Tensor rows = autograd::embedding(
        ids, words.weight(), positions.weight(),
        {.positions = scope.positions, .start = start, .ignored_id = options.ignored_id});
    return words.adapted(rows, ids);
  }
  TensorRanks* ranks = words.tensor_ranks();
  const auto rows = [&] {
    const Tensor all = autograd::value(own_weight(ranks, positions.weight()));
    return own_tokens_of(ranks, autograd::narrow(all, 0, start, ids.dim(-1)), ids.dim(0));
  };
  const Tensor places = scope.positions.defined() ? positions.forward(scope.positions) : rows();
  return autograd::add(words.forward(ids, options.ignored_id), places);
}

Tensor relative_bias(Embedding& table, const Tensor& buckets, int64_t queries, int64_t keys) {
  TensorRanks* ranks = table.tensor_ranks();
  Parameter& weight = table.weight();
  if (ranks == nullptr) return autograd::relative_position_bias(weight, buckets, queries, keys);
  // Each rank has the part of the table's gradient that comes from its heads.
  return autograd::relative_position_bias(ranks->spread_exactly(autograd::value(weight)), buckets,
                                          queries, keys);
}

}  // namespace zinc::nn
