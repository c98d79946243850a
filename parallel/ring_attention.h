// parallel/ring_attention.h: causal attention of ranks that each have chunks of the tokens, where
// no rank ever has the keys of all (Liu et al. 2023, "Ring Attention with Blockwise Transformers").
#pragma once

#include "autograd/ops/attention.h"
#include "comm/world.h"
#include "nn/sequence_ranks.h"
#include "tensor/tensor.h"

namespace zinc::parallel {

// Implements nn::attend_to_all() for the chunks of nn::token_runs(). In each of S turns a rank
// attends to the keys and values of one rank while the next ones arrive (StreamRole::gather):
// kernels/ attention_merge.h puts the turns together in f32 (f64 for f64); outputs and gradients of
// a turn are rounded to q's dtype first. Backward passes keys, values and the sums of their
// gradients in f32 round the ring again; a sum is added in the order of ranks, from the rank behind
// the keys' own rank on.
// `group` and `ranks` must outlive the gradient's history.
Tensor ring_attention(comm::World& group, const nn::SequenceRanks& ranks, const Tensor& q,
                      const Tensor& k_and_v, const autograd::AttentionOptions& how);

}  // namespace zinc::parallel
