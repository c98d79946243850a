// core/cuda/recording.h: the stream's side of a CUDA graph; core/cuda/graph.cpp is the other.
//
// Note [Streams of a recording]
// While a stream records, kernels and copies that are queued on it do not run. Another stream of
// the device that waits for an event of the recording joins it, until the recording ends; waits
// between these streams become edges of the graph. So work that forks to other streams and comes
// back is recorded by the calls that would run it. A launch of the graph runs after all work that
// was issued to these streams before, and ahead of all work that is issued to them later. Streams
// outside of the recording see its events as its end, and cannot wait for one before that. Waits
// for events from outside are made when the recording has ended, ahead of later work. A call that a
// launch could not repeat throws CudaError: a host task, a wait of the host, a copy from pageable
// memory.
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
  std::vector<Stream*> others{};               // the other streams that recorded too
};

// Records the work that `body` queues on `stream`. Throws what `body` threw, or CudaError.
Recorded record(StreamRef stream, const std::function<void()>& body);
}  // namespace zinc::cuda
