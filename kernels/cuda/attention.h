// kernels/cuda/attention.h: attention on a GPU, once checked.
#pragma once

#include <cstdint>

#include "core/stream.h"
#include "kernels/attention_problem.h"

namespace zinc::kernels::cuda {

// Queues the work. f32, bf16 and f16; head sizes up to 256; throws InvalidArgument for others.
void run_attention_forward(const AttentionProblem& p, const HeadsView& out, float* lse,
                           StreamRef stream);

// <dout, out> of every query, f32.
inline int64_t attention_backward_workspace_bytes(const AttentionProblem& p) {
  return p.B * p.H * p.Tq * int64_t{sizeof(float)};
}
void run_attention_backward(const AttentionProblem& p, const AttentionGradients& gradients,
                            float* workspace, StreamRef stream);

}  // namespace zinc::kernels::cuda
