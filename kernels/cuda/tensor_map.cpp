#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include "core/error.h"

namespace zinc::kernels::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function: its library is not linked.
Encode find_encode() {
#if defined(ZINC_CUDA_EMULATED)
  return &cuTensorMapEncodeTiled;
#else
  constexpr unsigned kVersion = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                              kVersion, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess) {
    throw CudaError("the driver makes no tensor maps: it is older than CUDA 12.0");
  }
  return reinterpret_cast<Encode>(found);
#endif
}

}  // namespace

CUtensorMap make_tensor_map(const TiledTensor& tensor) {
  constexpr size_t kRank = 4;
  std::array<cuuint64_t, kRank> extents{};
  std::array<cuuint64_t, kRank - 1> strides{};
  for (size_t d = 0; d < kRank; ++d) {
    extents[d] = static_cast<cuuint64_t>(tensor.extent[d]);
    if (d == 0) continue;
    // The stride of a single element says nothing, and may be one that a map refuses.
    constexpr int64_t kUnit = 8;  // 16 bytes
    const int64_t whole = (tensor.extent[0] + kUnit - 1) / kUnit * kUnit;
    const int64_t elements = tensor.extent[d] == 1 ? whole : tensor.stride[d];
    strides[d - 1] = static_cast<cuuint64_t>(elements * size_of(tensor.dtype));
  }
  const std::array<cuuint32_t, kRank> box{kBoxColumns, static_cast<cuuint32_t>(tensor.rows), 1, 1};
  const std::array<cuuint32_t, kRank> each{1, 1, 1, 1};
  CUtensorMap map{};
  const CUresult status = find_encode()(
      &map,
      tensor.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                  : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      kRank, const_cast<void*>(tensor.data), extents.data(), strides.data(), box.data(),
      each.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw CudaError(str("cuTensorMapEncodeTiled: error ", static_cast<int>(status)));
  }
  return map;
}

}  // namespace zinc::kernels::cuda
