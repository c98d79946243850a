// nn/models/decoder.h: what decoder-only language models have in common.
#pragma once

#include <algorithm>
#include <cstdint>

#include "autograd/mode.h"
#include "autograd/recompute.h"
#include "autograd/weight.h"
#include "nn/attention.h"
#include "nn/kv_cache.h"
#include "nn/model.h"
#include "tensor/tensor.h"

namespace zinc::nn {

// Throws InvalidArgument unless ids is [B, T] with 1 <= T <= model.max_sequence().
void require_sequence(const Model& model, const Tensor& ids);

// Throws InvalidArgument unless the cache has room for ids [B, T], and the model positions.
void require_room(const Model& model, const Tensor& ids, const KvCache& cache);

// The position of the first token of a pass.
int64_t start_of(const AttentionScope& scope);

// The hidden states [B, T, C] of the last position through the head [V, C]: [B, V] f32.
Tensor last_logits(const Tensor& hidden, const autograd::Weight& head);

// 6 per multiplied weight, and 6 layers x width x sequence for causal attention: the two products
// of scores and values, half of them masked out, forward once and backward twice.
double decoder_flops_per_token(int64_t multiplied_weights, int64_t num_layers, int64_t width,
                               int64_t sequence);

// Blocks go in segments of `every` whose activations are computed again in backward, where
// every > 0; else one by one, and everything is kept.
inline int64_t num_segments(int64_t num_blocks, int64_t every) {
  const int64_t length = std::max<int64_t>(every, 1);
  return (num_blocks + length - 1) / length;
}

// x through one segment. forward(block, x) -> x.
template <class Blocks, class Forward>
Tensor run_segment(Blocks& blocks, int64_t segment, const Tensor& x, int64_t every,
                   const Forward& forward) {
  if (every <= 0) return forward(blocks[segment], x);
  const int64_t begin = segment * every;
  const int64_t end = std::min(begin + every, blocks.size());
  return autograd::recompute(
      [&blocks, forward, begin, end](const Tensor& in) {
        Tensor out = in;
        for (int64_t i = begin; i < end; ++i) out = forward(blocks[i], out);
        return out;
      },
      x);
}

// x through all segments.
template <class Blocks, class Forward>
Tensor run_blocks(Blocks& blocks, Tensor x, int64_t every, const Forward& forward) {
  const int64_t count = num_segments(blocks.size(), every);
  for (int64_t i = 0; i < count; ++i) x = run_segment(blocks, i, x, every, forward);
  return x;
}

}  // namespace zinc::nn
