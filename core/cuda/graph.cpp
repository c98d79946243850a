// CUDA graphs of the work that a stream was given.
#include <cuda_runtime.h>

#include <memory>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/cuda/recording.h"
#include "core/cuda/status.h"
#include "core/cuda_backend.h"

namespace zinc {

namespace {

class RecordedGraph final : public CudaGraph {
 public:
  explicit RecordedGraph(cuda::Recorded recorded)
      : tasks_(std::move(recorded.tasks)), others_(std::move(recorded.others)) {
    const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, cudaError_t (*)(cudaGraph_t)> owned(
        recorded.graph, cudaGraphDestroy);
    list_kernels(recorded.graph);
    cuda::check(cudaGraphInstantiate(&graph_, recorded.graph, 0), "cudaGraphInstantiate");
  }
  ~RecordedGraph() override { cudaGraphExecDestroy(graph_); }
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;
  void launch(StreamRef stream) override {
    for (Stream* other : others_) stream->wait(other->record());
    cuda::check(cudaGraphLaunch(graph_, static_cast<cudaStream_t>(stream->native())),
                "cudaGraphLaunch");
    if (others_.empty()) return;
    const Event done = stream->record();
    for (Stream* other : others_) other->wait(done);
  }
  std::vector<CudaKernelUse> kernels() const override { return kernels_; }

 private:
  // Kernels of the driver's interface have no entry in the runtime's: they are left out.
  void list_kernels(cudaGraph_t recorded) {
#if defined(ZINC_CUDA_EMULATED)
    static_cast<void>(recorded);
#else
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
#endif
  }

  std::vector<std::shared_ptr<void>> tasks_;
  std::vector<Stream*> others_;
  std::vector<CudaKernelUse> kernels_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<CudaGraph> record_cuda_graph(StreamRef stream, const std::function<void()>& body) {
  return std::make_unique<RecordedGraph>(cuda::record(stream, body));
}

}  // namespace zinc
