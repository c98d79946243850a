// tests/cudnn/recorded_graph.h: a graph of cuDNN's operations, recorded by functions that stand in
// for the library's and computed in f64, operation by operation: what the graph says, by cuDNN's
// documentation of each operation, whatever cuDNN makes of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "kernels/cuda/cudnn_descriptor.h"

namespace zinc::test {

// The functions that build descriptors; the others are null.
kernels::cuda::CudnnFunctions recording_functions();

// The memory of each tensor, by its number: f64, whatever the tensor's type in the graph, at the
// graph's strides. Tensors that the graph keeps to itself have none.
using Memory = std::map<int64_t, double*>;
// Throws Error where the graph has an operation that is unknown here, or a tensor that has no
// place.
void compute(const kernels::cuda::CudnnDescriptor& graph, const Memory& memory);

}  // namespace zinc::test
