// kernels/cuda/tensor_map.h: descriptions of tensors in global memory whose boxes kernels copy
// (kernels/cuda/bulk_copy.h). A map is an argument of a kernel: `const __grid_constant__`.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "core/dtype.h"

namespace zinc::kernels::cuda {

inline constexpr int kBoxColumns = 64;  // 128 bytes of 16-bit elements: one row of a swizzled tile

// A tensor of bf16 or f16 whose address and strides are multiples of 16 bytes. A box is `rows` of
// dimension 1, at most 256, by kBoxColumns of dimension 0, and comes to shared memory swizzled:
// Note [Tiles of wgmma].
struct TiledTensor {
  const void* data = nullptr;
  DType dtype = DType::bf16;
  std::array<int64_t, 4> extent{};  // dimension 0 has no gaps
  std::array<int64_t, 4> stride{};  // elements; that of dimension 0 is not read
  int64_t rows = 0;
};
// Throws CudaError where the driver refuses the tensor, or is older than 12.0.
CUtensorMap make_tensor_map(const TiledTensor& tensor);

}  // namespace zinc::kernels::cuda
