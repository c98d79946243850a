// Which kernels attention takes on a GPU. kernels/cuda/attention.h is the interface.
#include "kernels/cuda/attention.h"

#include "core/error.h"
#include "kernels/cuda/attention_kernels.h"

namespace zinc::kernels::cuda {
namespace {

// The only place where a kernel is chosen: by shape, dtype, strides and alignment, so that every
// rank and every run of a program choose alike. Backward needs dout aligned too.
bool takes_tensor_cores(const AttentionProblem& p, const AttentionShape& shape) {
  constexpr int64_t kMaxTokens = int64_t{1} << 30;  // positions are 32-bit numbers there
  return is_16bit_float(p.dtype) && p.D % 8 == 0 && shape.aligned && p.Tq < kMaxTokens &&
         p.Tk < kMaxTokens;
}

}  // namespace

void run_attention_forward(const AttentionProblem& p, const HeadsView& out, float* lse,
                           StreamRef stream) {
  const AttentionShape shape = attention_shape("attention_forward", p);
  if (takes_tensor_cores(p, shape)) return mma_attention_forward(p, shape, out, lse, stream);
  tile_attention_forward(p, shape, out, lse, stream);
}

void run_attention_backward(const AttentionProblem& p, const AttentionGradients& gradients,
                            float* workspace, StreamRef stream) {
  AttentionShape shape = attention_shape("attention_backward", p);
  shape.aligned = shape.aligned && can_read_packs(gradients.dout, p.dtype);
  attention_delta(p, shape, gradients, workspace, stream);
  if (takes_tensor_cores(p, shape)) {
    mma_attention_backward(p, shape, gradients, workspace, stream);
  } else {
    tile_attention_backward(p, shape, gradients, workspace, stream);
  }
  if (gradients.dbias) attention_bias_gradient(p, shape, gradients, workspace, stream);
}

}  // namespace zinc::kernels::cuda
