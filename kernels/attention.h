// kernels/attention.h: scaled dot-product attention in blocks; no [Tq, Tk] matrix in memory.
//   s[i,j] = cap(scale * <q_i, k_j>) + alibi + bias[i,j]  for the keys j that query i may see
//   cap(x) = softcap * tanh(x / softcap), or x            (Gemma 2, 2024, section 2)
//   out_i  = sum_j dropout(softmax_j(s[i,:])) v_j
//   lse_i  = log(sum_j exp(s[i,j])),  natural logarithm
// After Dao et al., "FlashAttention" (2022), algorithms 1 and 4; gradients recompute s from lse.
//
// Legend: B batch, Tq queries, Tk keys, H query heads, G key/value heads (H % G == 0; query head h
// reads key head h / (H / G)), D head size. All tensors are views with contiguous D and otherwise
// free strides: q, k and v may lie in one buffer [B, T, 3, H, D].
//
// Scores, softmax and all sums in f32 (f64 for f64); probabilities are rounded to the dtype of q
// before they meet v. Deterministic: blocks are cut by the shape alone and summed in order, so
// bits do not depend on the thread count. A query that sees no key has out = 0, lse = -infinity
// and zero gradients. Asynchronous on `stream`; workspace as in kernels/gemm.h.
#pragma once

#include <cstdint>
#include <optional>

#include "core/block_layout.h"
#include "core/philox.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// The terms that are added to the scores and the keys that a query sees. A query sees the keys that
// fulfil all given conditions. Query i stands at key position p = i + Tk - Tq, so that the last
// query sees the last key when keys of earlier tokens are cached.
//
// Note [Bias by distance]
// A bias that depends on j - p alone has a row of Tq + Tk - 1 elements a head, for the distances
// -(Tk - 1) to Tq - 1: its element Tq - 1 + j - i is added. That is the matrix whose rows lie -1
// apart, and so the kernels read it; its gradient sums along the diagonals.
struct AttentionMask {
  bool causal = true;      // keys j <= p
  int64_t window = 0;      // keys with |p - j| < window; 0: all (Beltagy et al. 2020, "Longformer")
  ConstView key_lengths;   // optional [B] i32: keys j < key_lengths[b] (padding on the right)
  ConstView key_begin;     // optional [B, Tq] i32: keys j >= key_begin[b,i]; for packed documents
                           // the position where the query's document starts
  ConstView key_end;       // optional [B, Tq] i32: keys j < key_end[b,i]
  ConstView alibi_slopes;  // optional [H] f32: adds -slope[h] * |p - j| (Press et al. 2022)
  ConstView bias;          // optional f32 (f64 for f64), added: [B or 1, H or 1, Tq, Tk] or, by
                           // distance, [H or 1, Tq + Tk - 1]
  // The positions of query 0 and key 0 in the sequence, where q and k hold only a part of it.
  // Lengths, begins and ends then count from the start of the sequence too.
  struct Origin {
    int64_t query = 0, key = 0;
  };
  std::optional<Origin> origin{};
  // Which blocks of positions see which; positions count from the start of the sequence, and all
  // lie within the layout. Blocks that are not seen are neither read nor computed.
  struct Layout {
    BlockLayoutPtr blocks{};  // null: all blocks are seen
    ConstView words{};        // blocks->words() in the device's memory, i32; absent on a CPU
    int64_t first_head = 0;   // the layout's head for head 0, unless it has one for all heads
  };
  Layout layout{};
};

// Zeroes probability ((b * H + h) * Tq + i) * Tk + j where key.uniform(that) < probability and
// divides the others by 1 - probability.
struct AttentionDropout {
  float probability = 0.0f;  // [0, 1)
  RandomKey key;
  ConstView counter{};  // [1] i64 on a GPU, may be absent: takes the place of key.counter_high
};

struct AttentionForward {
  ConstView q;         // [B, Tq, H, D] f64 | f32 | bf16 | f16
  ConstView k;         // [B, Tk, G, D] dtype of q
  ConstView v;         // [B, Tk, G, D] dtype of q
  View out;            // [B, Tq, H, D] dtype of q; may not overlap an input
  View lse;            // [B, H, Tq] f32 (f64 for f64), contiguous; optional: only backward needs it
  double scale = 0.0;  // 0: 1 / sqrt(D)
  double softcap = 0.0;  // 0: none
  AttentionMask mask;
  AttentionDropout dropout;
};
void attention_forward(const AttentionForward& args, StreamRef stream);
Cost cost(const AttentionForward& args);

struct AttentionBackward {
  ConstView q, k, v, out;  // as in forward
  ConstView lse;           // [B, H, Tq] from forward
  ConstView dout;          // [B, Tq, H, D] dtype of q
  View dq;                 // [B, Tq, H, D] dtype of q; overwritten
  View dk;                 // [B, Tk, G, D] dtype of q; overwritten
  View dv;                 // [B, Tk, G, D] dtype of q; overwritten
  View dbias;  // optional, shape and dtype of mask.bias, contiguous; overwritten, summed over the
               // dimensions in which bias is broadcast
  double scale = 0.0;  // as in forward
  double softcap = 0.0;
  AttentionMask mask;
  AttentionDropout dropout;
};
// dq, dk and dv may not overlap any input; they may be views into one buffer.
void attention_backward(const AttentionBackward& args, StreamRef stream);
// Counts the five products of the blocked backward (the scores are computed again).
Cost cost(const AttentionBackward& args);

}  // namespace zinc::kernels
