// kernels/cuda/tensor_core.h: the tensor cores of a warp on bf16 and f16: matrices from shared
// memory (ldmatrix) and products of them (mma, f32 sums), both of compute capability 8.0 and later.
//
// All 32 lanes of a warp call these functions together. With g = lane / 4 and t = lane % 4, a lane
// holds of
//   a [16, 16]:  a[r] = elements 2 t + 8 (r / 2) and the next of row g + 8 (r % 2)
//   b [16, 8]:   b[r] = elements 2 t + 8 r and the next of column g
//   sum [16, 8]: sum[e] = element 2 t + e % 2 of row g + 8 (e / 2)
// The lower half of a register is the element with the smaller index.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "core/float16.h"

namespace zinc::kernels::cuda {

// Four 8 x 8 matrices: lane l gives the address of row l % 8 of matrix l / 8, 16 bytes aligned to
// 16, and gets of each matrix elements 2 t and 2 t + 1 of row g.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* shared_row) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::load_matrices(shared_row, false, to);
#else
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
#endif
}

// The same of each matrix's transpose.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4],
                                                         const void* shared_row) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::load_matrices(shared_row, true, to);
#else
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
#endif
}

// sum += a * b, T bf16 or f16.
template <class T>
__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
#if defined(ZINC_CUDA_EMULATED)
  emulator::multiply_add(std::is_same_v<T, bf16> ? emulator::MmaType::bf16 : emulator::MmaType::f16,
                         sum, a, {b0, b1});
#else
  if constexpr (std::is_same_v<T, bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#endif
}

}  // namespace zinc::kernels::cuda
