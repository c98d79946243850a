// core/cuda/recording.h: the stream's side of a CUDA graph; core/cuda/graph.cpp is the other.
//
// Note [Streams of a recording]
// While a stream records, kernels and copies that are queued on it do not run. Another stream of
// the device that waits for one of its events records too, until the end, which comes behind all of
// them; waits between them become the graph's. So work that forks to other streams and comes back
// is recorded by the calls that would run it. A launch comes behind what all these streams were
// told before it, and what they are told then comes behind the launch. For everybody else events of
// a recording are those of its end, which nothing can wait for before; waits for events from
// outside are made when the recording has ended, before anything that comes later. What a replay
// could not repeat throws CudaError: a host task, a wait of the host, a copy from pageable memory.
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
  std::vector<Stream*> others{};               // that recorded too
};

// What `body` queues on `stream`. Throws what `body` threw, or CudaError.
Recorded record(StreamRef stream, const std::function<void()>& body);
}  // namespace zinc::cuda
