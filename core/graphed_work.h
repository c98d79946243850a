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
  // `memory` keeps the blocks of all recorded work. Context and memory must outlive this.
  GraphedWork(Context& context, KeptMemory& memory) : context_(context), memory_(memory) {}

  // The first call runs `work`, so that libraries load what they need. The second call records the
  // work that it queues; later calls launch the recording. On a meta device `work` always runs.
  // Throws as record_cuda_graph().
  void run(const std::function<void()>& work);
  // Call this when memory that the work uses has moved: the work is then recorded again. Waits for
  // the compute stream.
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
