// core/graphed_work.h: work of the compute stream that is issued once, then recorded as a CUDA
// graph, then launched.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/context.h"
#include "core/cuda_backend.h"
#include "core/kept_memory.h"

namespace zinc {

class GraphedWork {
 public:
  // `memory`: of all that is recorded. Both must outlive this.
  GraphedWork(Context& context, KeptMemory& memory) : context_(context), memory_(memory) {}

  // The first time `work` runs: libraries load what they need. The second time what it queues is
  // recorded; from then on that is launched. On a meta device it always runs. Throws as
  // record_cuda_graph().
  void run(const std::function<void()>& work);
  // Call when memory that the work uses has moved: it is recorded anew. Waits for the compute
  // stream.
  void forget();

  int64_t num_launched() const { return num_launched_; }

 private:
  Context& context_;
  KeptMemory& memory_;
  bool is_warm_ = false;
  std::unique_ptr<CudaGraph> graph_;
  int64_t num_launched_ = 0;
};

}  // namespace zinc
