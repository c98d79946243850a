// kernels/linear_cross_entropy.h: the output head of a language model and its loss, in chunks.
//   logits = hidden weight^T + bias;  loss = cross_entropy(logits, labels), summed over targets
// Logits exist for one chunk of rows (or columns) at a time, in f32 (f64 for f64) unless
// narrow_logits says otherwise; loss and ignored rows are as in kernels/cross_entropy.h. Chunks are
// cut by the shape and the kind of device alone. Deterministic. Asynchronous on `stream`; workspace
// as in kernels/gemm.h.
//
// Note [Two ways to the head's gradient]
//   with gradient  linear_cross_entropy_with_gradient() computes loss, dhidden and dweight in one
//                  go, while a chunk's logits are at hand: three products. The upstream gradient is
//                  not known yet, so the caller passes the one that it expects, `loss_scale`. When
//                  backward comes with another one, dhidden, dweight and dbias are multiplied by
//                  dloss / loss_scale (exact where that is a power of two and nothing leaves the
//                  dtype's range). For a training step: 3/4 of the time of the other way, but
//                  dweight must be stored from forward to backward.
//   recomputed     linear_cross_entropy_forward() saves lse [N] only; the backward function
//                  computes logits again, for any dloss and straight into the gradient buffers.
// Evaluation uses linear_cross_entropy_forward().
//
// Note [Rounding of dlogits]
// dlogits = loss_scale * (softmax - onehot) is formed in f32 and rounded once to the dtype of
// hidden, as an operand of the two gradient products. The scale goes in before that rounding: in
// f16 a probability below 6e-8 would otherwise vanish. In bf16 a power-of-two scale changes no bit
// of the rounded mantissas. Sums over chunks are kept in f32 and rounded to a 16-bit dweight or
// dhidden once.
//
// Note [Logits of 16 bits]
// With narrow_logits they are rounded to the dtype of hidden: half the bytes between the products,
// and twice the rows in a chunk. A probability is off by as much as its logit, for bf16 by up to
// 2^-9 of the logit's size; what follows is in f32 as before.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"
#include "kernels/cross_entropy.h"

namespace zinc::kernels {

// Most bytes that the logits of one chunk take where the arguments set no limit. Every chunk reads
// and writes the sum of dweight: few large ones on a GPU (1 GiB), chunks that stay near the caches
// on a CPU (128 MiB).
int64_t head_chunk_bytes(const Device& device);

// Legend: N rows (tokens), C features, V classes.
struct LinearCrossEntropyForward {
  ConstView hidden;        // [N, C] f64 | f32 | bf16 | f16; row stride free
  ConstView weight;        // [V, C] dtype of hidden; row stride free
  ConstView bias;          // optional [V], dtype of hidden
  ConstView labels;        // [N] i64 | i32, contiguous; kIgnoredLabel: no loss, no gradient
  View loss;               // one element, f32 (f64 for f64); overwritten
  View lse;                // optional [N] f32 (f64 for f64): what backward needs; 0 in ignored rows
  double smoothing = 0.0;  // label smoothing: kernels/cross_entropy.h
  ClassSlice slice{};      // the classes that the rows of weight hold: kernels/cross_entropy.h
  bool narrow_logits = false;  // Note [Logits of 16 bits]
  int64_t chunk_bytes = 0;     // 0: head_chunk_bytes()
};
void linear_cross_entropy_forward(const LinearCrossEntropyForward& args, StreamRef stream);
Cost cost(const LinearCrossEntropyForward& args);

struct LinearCrossEntropyBackward {
  ConstView hidden, weight, bias, labels;  // as in forward
  ConstView lse;                           // [N] from forward
  ConstView dloss;  // one element, f32 (f64 for f64): the upstream gradient, read on the stream
  View dhidden;     // optional [N, C] dtype of hidden, or f32; overwritten
  View dweight;     // optional [V, C] dtype of hidden, or f32
  View dbias;       // optional [V] dtype of hidden, or f32; only with bias
  bool accumulate_dweight = false;  // add to dweight and dbias instead of overwriting them
  double smoothing = 0.0;           // as in forward
  ClassSlice slice{};               // as in forward
  bool narrow_logits = false;       // as in forward
  int64_t chunk_bytes = 0;          // as in forward
};
void linear_cross_entropy_backward(const LinearCrossEntropyBackward& args, StreamRef stream);
Cost cost(const LinearCrossEntropyBackward& args);

struct LinearCrossEntropyWithGradient {
  ConstView hidden, weight, bias, labels;  // as in forward
  View loss;                               // one element, f32 (f64 for f64); not scaled
  View dhidden, dweight, dbias;            // as in backward
  bool accumulate_dweight = false;
  // The upstream gradient that is put into the gradients: loss_scale * device_loss_scale[0].
  double loss_scale = 1.0;
  ConstView device_loss_scale{};  // one element, f32 (f64 for f64), read on the stream; absent: 1
  double smoothing = 0.0;         // as in forward
  bool narrow_logits = false;     // as in forward
  int64_t chunk_bytes = 0;        // as in forward
};
void linear_cross_entropy_with_gradient(const LinearCrossEntropyWithGradient& args,
                                        StreamRef stream);
Cost cost(const LinearCrossEntropyWithGradient& args);

}  // namespace zinc::kernels
