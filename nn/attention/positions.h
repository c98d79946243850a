// nn/attention/positions.h: learned positions of tokens: tables of positions, and biases by
// distance.
#pragma once

#include <cstdint>

#include "nn/attention/attend.h"
#include "nn/embedding.h"
#include "nn/module.h"

namespace zinc::nn {

struct PositionedOptions {
  int64_t first = 0;        // row of the position table for position 0
  int64_t ignored_id = -1;  // tokens with this id add nothing to the words' gradient; -1: none
};
// words(ids) + positions(place of each token): [B, T] i32 | i64 -> [B, T, C]. A token's place is
// scope.positions, or start_of(scope) and on.
Tensor embed_with_positions(Embedding& words, Embedding& positions, const Tensor& ids,
                            const AttentionScope& scope, const PositionedOptions& options = {});

// PositionTerms::bias of the table's heads by distance, [H, queries + keys - 1] (Raffel et al.
// 2020). `buckets`: autograd::make_relative_buckets(). The bias is of all heads, the same on all
// ranks that share the heads.
Tensor relative_bias(Embedding& table, const Tensor& buckets, int64_t queries, int64_t keys);

}  // namespace zinc::nn
