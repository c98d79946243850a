// Graphs of what a stream was told. The emulator has none of CUDA's functions for them.
#include <cuda_runtime.h>

#include <set>
#include <vector>

#include "core/cuda/status.h"
#include "core/cuda_backend.h"

namespace zinc {

#if defined(ZINC_CUDA_EMULATED)

std::unique_ptr<CudaGraph> record_cuda_graph(StreamRef, const std::function<void()>&) {
  throw CudaError("the emulator records no CUDA graphs; they need a GPU");
}

#else

namespace {

class RecordedGraph final : public CudaGraph {
 public:
  explicit RecordedGraph(cudaGraph_t recorded) {
    list_kernels(recorded);
    cuda::check(cudaGraphInstantiate(&graph_, recorded, 0), "cudaGraphInstantiate");
  }
  ~RecordedGraph() override { cudaGraphExecDestroy(graph_); }
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;
  void launch(StreamRef stream) override {
    cuda::check(cudaGraphLaunch(graph_, static_cast<cudaStream_t>(stream->native())),
                "cudaGraphLaunch");
  }
  std::vector<CudaKernelUse> kernels() const override { return kernels_; }

 private:
  // Kernels of the driver's interface have no entry in the runtime's: they are left out.
  void list_kernels(cudaGraph_t recorded) {
    size_t count = 0;
    cuda::check(cudaGraphGetNodes(recorded, nullptr, &count), "cudaGraphGetNodes");
    std::vector<cudaGraphNode_t> nodes(count);
    cuda::check(cudaGraphGetNodes(recorded, nodes.data(), &count), "cudaGraphGetNodes");
    std::set<const void*> seen;
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type{};
      cudaKernelNodeParams parameters{};
      cudaFuncAttributes use{};
      const char* name = nullptr;
      if (cudaGraphNodeGetType(node, &type) != cudaSuccess || type != cudaGraphNodeTypeKernel ||
          cudaGraphKernelNodeGetParams(node, &parameters) != cudaSuccess ||
          !seen.insert(parameters.func).second ||
          cudaFuncGetAttributes(&use, parameters.func) != cudaSuccess ||
          cudaFuncGetName(&name, parameters.func) != cudaSuccess) {
        cudaGetLastError();
        continue;
      }
      kernels_.push_back({.name = name,
                          .registers = use.numRegs,
                          .spilled_bytes = static_cast<int64_t>(use.localSizeBytes),
                          .shared_bytes = static_cast<int64_t>(use.sharedSizeBytes)});
    }
  }

  std::vector<CudaKernelUse> kernels_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<CudaGraph> record_cuda_graph(StreamRef stream, const std::function<void()>& body) {
  auto* const native = static_cast<cudaStream_t>(stream->native());
  cuda::check(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
  cudaGraph_t recorded = nullptr;
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(native, &recorded);
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    cudaGetLastError();
    throw;
  }
  cuda::check(cudaStreamEndCapture(native, &recorded), "cudaStreamEndCapture");
  const std::unique_ptr<CUgraph_st, cudaError_t (*)(cudaGraph_t)> owned(recorded, cudaGraphDestroy);
  return std::make_unique<RecordedGraph>(recorded);
}

#endif

}  // namespace zinc
