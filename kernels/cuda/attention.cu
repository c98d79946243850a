// Chooses the kernels that attention takes on a GPU. kernels/cuda/attention.h is the interface.
#include "kernels/cuda/attention.h"

#include "core/context.h"
#include "core/error.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/capability.h"
#include "kernels/device_notes.h"

namespace zinc::kernels::cuda {
namespace {

// This file is the only place where a kernel is chosen: by shape, dtype, strides and alignment, so
// that every rank and every run of a program choose alike. Backward needs dout aligned too. A
// 16-bit problem that is left to the tiles is one of the context's DeviceNotes.
bool takes_tensor_cores(const char* op, const AttentionProblem& p, const AttentionShape& shape) {
  if (!is_16bit_float(p.dtype)) return false;
  constexpr int64_t kMaxTokens = int64_t{1} << 30;  // positions are 32-bit numbers there
  const char* why_not = p.D % 8 != 0     ? "the head size is not a multiple of 8"
                        : !shape.aligned ? "rows of an operand are not aligned to 16 bytes"
                        : p.Tq >= kMaxTokens || p.Tk >= kMaxTokens ? "there are 2^30 tokens or more"
                                                                   : nullptr;
  if (why_not == nullptr) return true;
  note_of_device(str(op, " of ", p.B, " x ", p.Tq, " queries and ", p.Tk, " keys, ", p.H,
                     " heads of ", p.D, ", ", p.dtype,
                     " runs in f32 without tensor cores, which is far slower: ", why_not));
  return false;
}

// Whether wgmma takes a problem that suits tensor cores. The kernel has not been timed, so it runs
// where a measured table or a test says so.
bool chooses_wgmma(const AttentionProblem& p, const AttentionShape& shape) {
  auto& slot = Context::current().slot<WgmmaAttention>();
  if (slot.use == WgmmaUse::never) return false;
  if (slot.use == WgmmaUse::by_table && !has_line(slot.table, AttentionPass::forward, p)) {
    return false;
  }
  if (!takes_wgmma(p, shape) || compute_capability() / 10 != 9) return false;
  ++slot.num_runs;
  return true;
}

}  // namespace

void run_attention_forward(const AttentionProblem& p, const HeadsView& out, float* lse,
                           StreamRef stream) {
  const AttentionShape shape = attention_shape("attention", p);
  if (takes_tensor_cores("attention", p, shape)) {
    return chooses_wgmma(p, shape) ? wgmma_attention_forward(p, shape, out, lse, stream)
                                   : mma_attention_forward(p, shape, out, lse, stream);
  }
  tile_attention_forward(p, shape, out, lse, stream);
}

void run_attention_backward(const AttentionProblem& p, const AttentionGradients& gradients,
                            float* workspace, StreamRef stream) {
  AttentionShape shape = attention_shape("attention_backward", p);
  shape.aligned = shape.aligned && can_read_packs(gradients.dout, p.dtype);
  attention_delta(p, shape, gradients, workspace, stream);
  if (takes_tensor_cores("attention_backward", p, shape)) {
    mma_attention_backward(p, shape, gradients, workspace, stream);
  } else {
    tile_attention_backward(p, shape, gradients, workspace, stream);
  }
  if (gradients.dbias) attention_bias_gradient(p, shape, gradients, workspace, stream);
}

}  // namespace zinc::kernels::cuda
