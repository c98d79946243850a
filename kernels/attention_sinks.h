// kernels/attention_sinks.h: a learned logit for each head takes part in the softmax of attention
// and has no value, so that a query may attend to nothing (Xiao et al., "Efficient Streaming
// Language Models with Attention Sinks", 2023; as OpenAI's gpt-oss learns them).
//   lse'_i = log(exp(lse_i) + exp(sink_h))
//   out'_i = exp(lse_i - lse'_i) out_i
//   dsink_h = -sum_{b,i} exp(sink_h - lse'_i) <out'_i, dout_i>
// The gradients of q, k and v are those of kernels::attention_backward() with out' and lse'.
// Legend: kernels/attention.h.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct AttentionSinks {
  ConstView sinks;  // [H] f32 (f64 for f64)
  View out;  // [B, Tq, H, D] f64 | f32 | bf16 | f16, contiguous D, other strides free; changed
  View lse;  // [B, H, Tq] f32 (f64 for f64), contiguous; changed
};
// Asynchronous on `stream`. In f32 (f64 for f64), rounded once. Deterministic.
void attention_sinks(const AttentionSinks& args, StreamRef stream);
Cost cost(const AttentionSinks& args);

struct AttentionSinksBackward {
  ConstView sinks;  // [H] as in forward, like what follows
  ConstView out;    // [B, Tq, H, D] out'
  ConstView lse;    // [B, H, Tq] lse'
  ConstView dout;   // [B, Tq, H, D] dtype of out, contiguous D, other strides free
  View dsinks;      // [H] dtype of sinks, contiguous; overwrites
};
// Asynchronous on `stream`. Sums in f32 (f64 for f64), in an order that depends on shapes alone.
void attention_sinks_backward(const AttentionSinksBackward& args, StreamRef stream);
Cost cost(const AttentionSinksBackward& args);

}  // namespace zinc::kernels
