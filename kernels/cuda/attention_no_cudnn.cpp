#include "kernels/cuda/attention.h"

namespace zinc::kernels::cuda {
namespace {

constexpr auto kMissing = "this build has no cuDNN: configure with ZINC_CUDNN=ON where cudnn.h is";

}  // namespace

LibraryAttention::Opened open_cudnn() { return {.library = nullptr, .why_not = kMissing}; }
std::string why_no_cudnn_graph(const AttentionKey&) { return kMissing; }

}  // namespace zinc::kernels::cuda
