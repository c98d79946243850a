// core/cuda/recording.h: the stream's side of a CUDA graph; core/cuda/graph.cpp is the other.
//
// While a stream records, kernels and copies that are queued on it do not run. Its events are
// those of the recording's end, which nothing can wait for before; waits for other streams' events
// are made when the recording has ended, before anything that comes later. What a replay could not
// repeat throws CudaError: a host task, a wait of the host, a copy from pageable memory.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <vector>

#include "core/stream.h"

namespace zinc::cuda {

struct Recorded {
  cudaGraph_t graph = nullptr;
  std::vector<std::shared_ptr<void>> tasks{};  // must live as long as what is made of the graph
};

// What `body` queues on `stream`. Throws what `body` threw, or CudaError.
Recorded record(StreamRef stream, const std::function<void()>& body);
// False for a stream that is not of core/cuda.
bool is_recording(StreamRef stream);

}  // namespace zinc::cuda
