// core/graphed_work.h: work of the compute stream that is issued once, then recorded as a CUDA
// graph, then launched.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "core/context.h"
#include "core/cuda_backend.h"
#include "core/kept_memory.h"

namespace zinc {

class GraphedWork {
 public:
  // As record_cuda_graph().
  using Record = std::function<std::unique_ptr<CudaGraph>(StreamRef stream,
                                                          const std::function<void()>& body)>;

  // `memory` keeps the blocks of all recorded work. Context and memory must outlive this.
  GraphedWork(Context& context, KeptMemory& memory, Record record = record_cuda_graph)
      : context_(context), memory_(memory), record_(std::move(record)) {}

  // The first call runs `work`, so that libraries load what they need. The second call records the
  // work that it queues; later calls launch the recording. On a meta device `work` always runs.
  // Throws as `record` does.
  void run(const std::function<void()>& work);
  // Call this when memory that the work uses has moved: the work is then recorded again. Waits for
  // the compute stream.
  void forget();

  int64_t num_launched() const { return num_launched_; }

 private:
  Context& context_;
  KeptMemory& memory_;
  const Record record_;
  bool is_warm_ = false;
  std::unique_ptr<CudaGraph> graph_;
  int64_t num_launched_ = 0;
};

}  // namespace zinc
