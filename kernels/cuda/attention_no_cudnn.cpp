#include "kernels/cuda/attention.h"

namespace zinc::kernels::cuda {
namespace {

constexpr auto kMissing = "this build has no cuDNN: configure with ZINC_CUDNN=ON where cudnn.h is";

}  // namespace

LibraryAttention::Opened open_cudnn() { return {.library = nullptr, .why_not = kMissing}; }
CudnnPlanReport report_cudnn_plan(const AttentionKey&, const std::string&) {
  return {.is_missing = true, .why_not = kMissing};
}

}  // namespace zinc::kernels::cuda
