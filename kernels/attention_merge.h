// kernels/attention_merge.h: attention over some keys and attention over others become one.
//   lse'   = log(exp(lse) + exp(part_lse))
//   out'_i = exp(lse_i - lse'_i) out_i + exp(part_lse_i - lse'_i) part_i
// As in Liu et al., "Ring Attention with Blockwise Transformers" (2023), with kernels/attention.h's
// legend: a query that sees no key of either has out = 0 and lse = -infinity.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct AttentionMerge {
  ConstView part;      // [B, Tq, H, D] f64 | f32 | bf16 | f16, contiguous D, other strides free
  ConstView part_lse;  // [B, H, Tq] f32 (f64 for f64), contiguous
  View out;            // [B, Tq, H, D] f32 (f64 for f64), changed; strides as part's
  View lse;            // [B, H, Tq] as part_lse, changed
};

// Asynchronous on `stream`. In f32 (f64 for f64), one row at a time. Deterministic.
void attention_merge(const AttentionMerge& args, StreamRef stream);
Cost cost(const AttentionMerge& args);

}  // namespace zinc::kernels
