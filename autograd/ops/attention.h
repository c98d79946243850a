// autograd/ops/attention.h: scaled dot-product attention; formulas and rules: kernels/attention.h.
#pragma once

#include <cstdint>

#include "core/block_layout.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// Legend: B batch, Tq queries, Tk keys, H query heads, G key/value heads (H % G == 0), D head size.
struct AttentionOptions {
  int64_t num_heads = 0;     // H
  int64_t num_kv_heads = 0;  // G; 0: H
  bool causal = true;        // the last query sees the last key
  int64_t window = 0;        // keys fewer than so many positions away; 0: all
  double scale = 0.0;        // 0: 1 / sqrt(D)
  double softcap = 0.0;      // scores become softcap * tanh(score / softcap); 0: they stay
  Tensor key_lengths;        // [B] i32: keys j < key_lengths[b]; undefined: all
  Tensor key_begin;          // [B, Tq] i32: keys j >= key_begin[b,i], where a document starts
  Tensor key_end;            // [B, Tq] i32: keys j < key_end[b,i]
  Tensor alibi_slopes;       // [H] f32, see make_alibi_slopes(); no gradient
  Tensor bias;               // f32 (f64 for f64), added to the scores: [B or 1, H or 1, Tq, Tk] or,
                             // by distance, [H or 1, Tq + Tk - 1]: see relative_position.h
  Tensor sinks;              // [H] f32 (f64 for f64): kernels/attention_sinks.h
  // Which blocks of positions see which; null: all. On a GPU with its words, [n] i32 there:
  // make_layout_words(). Head h has head layout_head + h of a layout that has several.
  BlockLayoutPtr layout{};
  Tensor layout_words{};
  int64_t layout_head = 0;
  double dropout = 0.0;  // probability that a softmax weight becomes 0
  uint64_t site = 0;     // hash_text of the module's path, for dropout
};

// q: [B, Tq, H * D], k, v: [B, Tk, G * D] or [B, G, Tk, D]; f64 | f32 | bf16 | f16, outer strides
// free. Result: [B, Tq, H * D], contiguous. Needs no [Tq, Tk] matrix. Deterministic. For
// cross-attention, pass k and v of another sequence and `causal` false. For norms of q and k (Henry
// et al. 2020), call rmsnorm() on [B, T, H, D] before; for rotary positions, rotary().
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options);
// qkv: [B, T, (H + 2 G) * D], a row is all of q, then k, then v. Backward writes the three
// gradients into one buffer. Result: [B, T, H * D].
Tensor attention(const Tensor& qkv, const AttentionOptions& options);

// The words of a layout on the current context's device; undefined on a CPU, which needs none.
Tensor make_layout_words(const BlockLayout& layout);

// [num_heads] f32, on the current context's device: 2^(-8 (h + 1) / H) for a power of two H; else
// the slopes of the next smaller power n, then every second slope of 2 n (Press et al. 2022, the
// published code).
Tensor make_alibi_slopes(int64_t num_heads);

}  // namespace zinc::autograd
