// kernels/cuda/attention.h: attention on a GPU, once checked.
#pragma once

#include <cstdint>
#include <string>

#include "core/stream.h"
#include "kernels/attention_library.h"
#include "kernels/attention_problem.h"

namespace zinc::kernels::cuda {

// Queues the work. f32, bf16 and f16; head sizes up to 256; throws InvalidArgument for others.
void run_attention_forward(const AttentionProblem& p, const HeadsView& out, float* lse,
                           StreamRef stream);

// attention_cudnn.cpp: opens cuDNN, which is looked for when it is first asked;
// attention_no_cudnn.cpp says that this build cannot.
LibraryAttention::Opened open_cudnn();
// The plan that the library would take on a GPU with these properties (cuDNN's own JSON of them);
// needs no GPU.
struct CudnnPlanReport {
  bool is_missing = false;      // the library is not found, or too old
  std::string why_not;          // the reason where there is no plan
  int64_t workspace_bytes = 0;  // of the plan: ours and cuDNN's own
};
CudnnPlanReport report_cudnn_plan(const AttentionKey& key, const std::string& device);
// attention_library_check.cpp: out and lse of a small problem by run_attention_forward() and by the
// library, twice: all that backward takes from forward.
std::string check_attention_library(AttentionLibrary& library, const AttentionKey& small,
                                    std::byte* workspace, StreamRef stream);
inline LibraryAttention::Backend attention_backend() {
  return {.open = open_cudnn, .check = check_attention_library};
}

// <dout, out> of every query, f32.
inline int64_t attention_backward_workspace_bytes(const AttentionProblem& p) {
  return p.B * p.H * p.Tq * int64_t{sizeof(float)};
}
void run_attention_backward(const AttentionProblem& p, const AttentionGradients& gradients,
                            float* workspace, StreamRef stream);

}  // namespace zinc::kernels::cuda
