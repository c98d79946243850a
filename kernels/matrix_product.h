// kernels/matrix_product.h: what gemm and batched_gemm hand to a device's code once checked.
#pragma once

#include <array>
#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/gemm.h"

namespace zinc::kernels {

// A batch of products of one shape; the fields are those of Gemm, pointers stand at element (0, 0)
// of batch index 0.
struct MatrixProduct {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::f32;    // of a and b
  DType c_dtype = DType::f32;  // of c, x, pre and the factor
  Device device;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements from one stored row to the next
  const void* addend = nullptr;  // the matrix that beta multiplies: c, or another one of its dtype
  int64_t addend_stride = 0;
  bool transpose_a = false, transpose_b = false;
  double alpha = 1.0, beta = 0.0;

  // Both or none: a and b (transposed) are codes of 8 bits that stand for values of `dtype`;
  // a_unscale and b_unscale, in device memory, multiply the values.
  Fp8 a_fp8 = Fp8::none, b_fp8 = Fp8::none;
  const float* a_unscale = nullptr;
  const float* b_unscale = nullptr;

  // Optional operands; batch is 1 where one is given.
  const void* bias = nullptr;
  DType bias_dtype = DType::f32;
  Activation activation = Activation::none;
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* factor = nullptr;
  int64_t factor_stride = 0;
  void* factor_gradient = nullptr;
  int64_t factor_gradient_stride = 0;
  void* pre = nullptr;
  int64_t pre_stride = 0;
  void* sums = nullptr;  // sums of a or b over k
  bool sums_are_of_a = false, adds_to_sums = false;
  DType sums_dtype = DType::f32;

  // Leading dimensions, outermost first; strides in elements.
  int batch_rank = 0;
  std::array<int64_t, kMaxRank> batch_extent{};
  std::array<int64_t, kMaxRank> a_step{}, b_step{}, c_step{};

  constexpr int64_t num_sums() const { return sums == nullptr ? 0 : sums_are_of_a ? m : n; }
  constexpr int64_t batch() const {
    int64_t count = 1;
    for (int i = 0; i < batch_rank; ++i) count *= batch_extent[static_cast<size_t>(i)];
    return count;
  }
  // Elements from batch index 0 to batch index i.
  constexpr int64_t offset(int64_t i, const std::array<int64_t, kMaxRank>& step) const {
    int64_t offset = 0;
    for (int d = batch_rank - 1; d >= 0; --d) {
      const auto at = static_cast<size_t>(d);
      offset += i % batch_extent[at] * step[at];
      i /= batch_extent[at];
    }
    return offset;
  }
};

namespace cpu {

// All extents > 0 but k. Takes its workspace from the current context and queues the work; on a
// meta device it takes the workspace only.
void run_product(const MatrixProduct& product, const char* label, StreamRef stream);

// The f64 path, plain loops; all threads.
void run_product_f64(const MatrixProduct& product);

}  // namespace cpu
}  // namespace zinc::kernels
