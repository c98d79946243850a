// kernels/cpu/block_convert.h: blocks of 16-bit floats as f32.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace zinc::kernels::cpu {

// to[r, c] = from[r, c] for a block of rows x cols; f32 | bf16 | f16 -> f32, exact. Rows lie
// from_stride and to_stride elements apart. On the calling thread.
void widen_block(const void* from, DType dtype, int64_t rows, int64_t cols, int64_t from_stride,
                 float* to, int64_t to_stride);
// The same with rounding to nearest even; f32 -> f32 | bf16 | f16.
void narrow_block(const float* from, int64_t rows, int64_t cols, int64_t from_stride, void* to,
                  DType dtype, int64_t to_stride);

}  // namespace zinc::kernels::cpu
