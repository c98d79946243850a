// kernels/cuda/capability.h: the capabilities of the calling thread's GPU.
#pragma once

#include <cuda_runtime.h>

namespace zinc::kernels::cuda {

// Compute capability of the current device, as in 90 for 9.0; 0 where it does not say. Cheap.
inline int compute_capability() {
  int device = 0, major = 0, minor = 0;
  const bool is_known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
  return is_known ? 10 * major + minor : 0;
}

// Multiprocessors of the current device; 1 where the driver does not say.
inline int multiprocessors() {
  int device = 0, count = 0;
  const bool is_known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
  return is_known && count > 0 ? count : 1;
}

}  // namespace zinc::kernels::cuda
