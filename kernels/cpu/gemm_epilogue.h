// kernels/cpu/gemm_epilogue.h: what follows the products of a tile: scale, accumulate, bias,
// activation, rounding.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/gemm.h"

namespace zinc::kernels::cpu {

// For r < rows, c < cols, with s = sum of the slices in order:
//   z = alpha * s, then beta * D + z (one fma), then + bias[c]
//   gradient:   C = z * activation'(x), or with a factor u: C = z * u * activation'(x), and the
//               gradient of u = z * activation(x), z rounded
//   activation: P = round(z), C = activation(P)          (P stored where `pre` is given)
//   otherwise:  C = z
struct EpilogueTile {
  int64_t rows = 0, cols = 0;
  const float* slices = nullptr;  // [slice_count][rows, cols]; null: s = 0
  int64_t slice_count = 1;
  int64_t slice_step = 0;  // floats from one slice to the next
  int64_t stride = 0;      // floats from one row of a slice to the next
  float alpha = 1.0f;
  float beta = 0.0f;
  const void* addend = nullptr;  // D, of dtype; where beta is not 0
  int64_t addend_stride = 0;
  const void* bias = nullptr;  // [cols] of bias_dtype: f32, bf16 or f16
  DType bias_dtype = DType::f32;
  Activation activation = Activation::none;
  DType dtype = DType::f32;  // of c, x, pre and factor: f32, bf16 or f16
  const void* x = nullptr;   // given: gradient
  int64_t x_stride = 0;
  const void* factor = nullptr;  // given: with x
  int64_t factor_stride = 0;
  void* factor_gradient = nullptr;
  int64_t factor_gradient_stride = 0;
  void* pre = nullptr;
  int64_t pre_stride = 0;
  void* c = nullptr;
  int64_t c_stride = 0;
};

// On the calling thread.
void finish_tile(const EpilogueTile& tile);

}  // namespace zinc::kernels::cpu
