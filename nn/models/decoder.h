// nn/models/decoder.h: what decoder-only language models have in common.
#pragma once

#include <cstdint>

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

// Of one layer, per token: scores and values of causal attention to keys fewer than `window`
// positions away, forward once and backward twice.
double causal_attention_flops(int64_t width, int64_t sequence, int64_t window);

// What the tokens of a batch see of each other: its lengths and document_starts, if any.
AttentionScope scope_of(const Batch& batch);

// The logits [B, T, V] of all positions, f32.
Tensor all_logits(const Tensor& hidden, const autograd::Weight& head);

}  // namespace zinc::nn
