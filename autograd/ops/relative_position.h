// autograd/ops/relative_position.h: a learned bias of attention by the distance of key and query,
// in buckets (Raffel et al. 2020, "T5", section 2.1; the buckets of Hugging Face's T5Attention). No
// tensor of [Tq, Tk] elements is made: see Note [Bias by distance] in kernels/attention.h.
#pragma once

#include <cstdint>

#include "autograd/weight.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// n: buckets; where bidirectional, n is half of them, and the upper half is for keys behind the
// query. Each distance below n / 2 has its own bucket; larger distances share logarithmic buckets
// up to max_distance, and all beyond share the last.
struct RelativeBuckets {
  int64_t buckets = 32;
  int64_t max_distance = 128;
  // false: for a decoder, where all keys behind the query are in bucket 0
  bool bidirectional = true;
};
// The bucket of distance = key's position - query's position.
int64_t relative_bucket(int64_t distance, const RelativeBuckets& options);

// Buckets of the distances -(N - 1) to N - 1 for up to N positions: a module's constant, made once.
// [2 N - 1] i32, on the current context's device. Throws InvalidArgument for fewer than 2 buckets
// (4 where it is bidirectional) or a max_distance within those that have one each.
Tensor make_relative_buckets(int64_t positions, const RelativeBuckets& options = {});

// table: [buckets, H], float, Hugging Face's relative_attention_bias.weight; buckets: of at least
// max(queries, keys) positions. Result: [H, queries + keys - 1] f32 (f64 for f64): attention's
// `bias` for queries that end where the keys end. Deterministic; the table has a gradient.
Tensor relative_position_bias(const Weight& table, const Tensor& buckets, int64_t queries,
                              int64_t keys);

}  // namespace zinc::autograd
