// kernels/cuda/attention_kernels.h: the kernels among which kernels/cuda/attention.cu chooses. Each
// queues its launches.
#pragma once

#include "core/stream.h"
#include "kernels/attention_problem.h"
#include "kernels/cuda/attention_shape.h"

namespace zinc::kernels::cuda {

// f32 arithmetic on tiles of 32 rows: every dtype, head size and alignment.
void tile_attention_forward(const AttentionProblem& p, const AttentionShape& shape,
                            const HeadsView& out, float* lse, StreamRef stream);
// Tensor cores: bf16 and f16, head sizes that are multiples of 8, rows of all inputs aligned to 16
// bytes, Tq and Tk below 2^30.
void mma_attention_forward(const AttentionProblem& p, const AttentionShape& shape,
                           const HeadsView& out, float* lse, StreamRef stream);
// Attention on the tensor cores and copies of compute capability 9.0 (wgmma, TMA). It takes the
// problems of the kernel before that have masks without a layout and without other terms of the
// scores, no dropout, a head size up to 128, and at least one key and query. Its sums are added in
// another order. attention.cu says when it is chosen.
bool takes_wgmma(const AttentionProblem& p, const AttentionShape& shape);
void wgmma_attention_forward(const AttentionProblem& p, const AttentionShape& shape,
                             const HeadsView& out, float* lse, StreamRef stream);

// Backward. `delta`: [B, H, Tq], <dout, out> of every query, which the first writes and the others
// read.
void attention_delta(const AttentionProblem& p, const AttentionShape& shape,
                     const AttentionGradients& gradients, float* delta, StreamRef stream);
// dq, dk and dv.
void tile_attention_backward(const AttentionProblem& p, const AttentionShape& shape,
                             const AttentionGradients& gradients, const float* delta,
                             StreamRef stream);
void mma_attention_backward(const AttentionProblem& p, const AttentionShape& shape,
                            const AttentionGradients& gradients, const float* delta,
                            StreamRef stream);
void attention_bias_gradient(const AttentionProblem& p, const AttentionShape& shape,
                             const AttentionGradients& gradients, const float* delta,
                             StreamRef stream);

}  // namespace zinc::kernels::cuda
