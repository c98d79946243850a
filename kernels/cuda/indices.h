// kernels/cuda/indices.h: row numbers, token ids and labels of either index dtype, on the device.
//
// Note [Indices outside their range on a GPU]
// The host does not see an index in device memory when it launches a kernel, so none of the errors
// that name a bad index on the CPU can come from a launch. A kernel never reads or writes outside
// its table; what depends on a bad index becomes NaN (the bits 0xff.. for other dtypes), and
// gradients get nothing from it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/view.h"

namespace zinc::kernels::cuda {

struct Indices {
  const int32_t* narrow = nullptr;
  const int64_t* wide = nullptr;

  Indices() = default;
  explicit Indices(const ConstView& view) {
    if (!view) return;
    if (view.dtype() == DType::i32) {
      narrow = view.data_as<int32_t>();
    } else {
      wide = view.data_as<int64_t>();
    }
  }
  __device__ __forceinline__ bool is_absent() const { return narrow == nullptr && wide == nullptr; }
  __device__ __forceinline__ int64_t operator[](int64_t i) const {
    return narrow != nullptr ? int64_t{narrow[i]} : wide[i];
  }
};

__device__ __forceinline__ bool is_row(int64_t index, int64_t rows) {
  return index >= 0 && index < rows;
}

}  // namespace zinc::kernels::cuda
