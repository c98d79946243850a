// tests/emulator/include/cuda.h: stands in for the driver's header: tensor maps, which
// kernels/cuda/tensor_map.cpp makes.
#pragma once

#include <cstdint>

#include "tests/emulator/bulk_copy.h"

struct CUtensorMap {
  zinc::emulator::TensorMap map;
};

using CUresult = int;
inline constexpr CUresult CUDA_SUCCESS = 0;
inline constexpr CUresult CUDA_ERROR_INVALID_VALUE = 1;
using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;

enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle {
  CU_TENSOR_MAP_SWIZZLE_NONE = 0,
  CU_TENSOR_MAP_SWIZZLE_32B = 1,
  CU_TENSOR_MAP_SWIZZLE_64B = 2,
  CU_TENSOR_MAP_SWIZZLE_128B = 3,
};
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2 };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };

// The driver's refusals are invalid values here: more than five dimensions, addresses and strides
// that are no multiples of 16 bytes, boxes above 256 elements, element strides other than 1 (which
// are not emulated), rows of a box that are no multiple of 16 bytes or longer than the swizzle.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* extents,
                                const cuuint64_t* strides_bytes, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill);
