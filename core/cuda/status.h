// core/cuda/status.h: CUDA's status codes as errors.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "core/error.h"

namespace zinc::cuda {

// Throws CudaError "<what>: <CUDA's own text>" unless the call succeeded.
inline void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that was reported is not found again by the next call
  throw CudaError(str(what, ": ", cudaGetErrorString(status)));
}

}  // namespace zinc::cuda
