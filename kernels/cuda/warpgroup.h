// kernels/cuda/warpgroup.h: products of four warps on the tensor cores of compute capability 9.0
// (wgmma), beside the threads. PTX, or the emulator's.
//
// All 128 threads of a warpgroup call these functions together. A group of products:
//   begin_products(); multiply...(); ...; commit_products(); ... wait_products<kPending>();
// Until the wait nobody may read or write the sums, the left operands in registers, or the shared
// memory that the products read. With w the warp in its group, g = lane / 4 and t = lane % 4 a
// thread's sum[c][e] is that of row 16 w + g + 8 (e / 2) and column 8 c + 2 t + e % 2, and a left
// operand in registers is that of mma (kernels/cuda/tensor_core.h) for rows 16 w and on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "core/float16.h"
#include "kernels/cuda/bulk_copy.h"

namespace zinc::kernels::cuda {

inline constexpr int kWarpgroup = 128;

// Note [Tiles of wgmma]
// A tile has rows of 128 bytes, 64 elements of 16 bits, begins at a multiple of 1024 bytes, and is
// swizzled as TMA writes it (128 bytes): chunk c of row r lies at chunk c ^ (r % 8). Wider matrices
// are several such tiles. A descriptor names a part of it: bits 0-13 the address, 16-29 the bytes
// to the next 64 columns, 32-45 those to the next eight rows, each in units of 16, and in bits
// 62-63 the swizzle (PTX ISA, "Matrix descriptor"). `elements`: of a row, multiples of 16; for a
// tile whose rows are the k of an operand, multiples of 16 rows of 64.
__device__ __forceinline__ uint64_t tile_descriptor(const void* tile, int elements,
                                                    uint32_t bytes_to_next_columns = 0) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = 1024;
  const uint32_t address = shared_address(tile) + static_cast<uint32_t>(elements) * 2;
  return kSwizzle128 | kEightRows >> 4 << 32 | uint64_t{bytes_to_next_columns >> 4} << 16 |
         uint64_t{(address & 0x3ffff) >> 4};
}

__device__ __forceinline__ void begin_products() {
#if defined(ZINC_CUDA_EMULATED)
  emulator::fence_products();
#elif ZINC_HAS_SM90
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void commit_products() {
#if defined(ZINC_CUDA_EMULATED)
  emulator::commit_products();
#elif ZINC_HAS_SM90
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits until at most the `kPending` newest groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_products() {
#if defined(ZINC_CUDA_EMULATED)
  emulator::wait_products(kPending);
#elif ZINC_HAS_SM90
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}

// The compiler may not move operations on the sums across this.
template <int kTiles>
__device__ __forceinline__ void hold([[maybe_unused]] float (&sum)[kTiles][4]) {
#if !defined(ZINC_CUDA_EMULATED)
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) asm volatile("" : "+f"(sum[i / 4][i % 4])::"memory");
#endif
}

// Sets the registers of each thread from now on: a multiple of 8. `kMore`: more than before; the
// call then waits until other warps have given registers back.
template <int kCount, bool kMore>
__device__ __forceinline__ void set_registers() {
#if defined(ZINC_CUDA_EMULATED)
  emulator::set_registers(kCount);
#elif ZINC_HAS_SM90
  if constexpr (kMore) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
  }
#endif
}

#if !defined(ZINC_CUDA_EMULATED)
// clang-format off
#define ZINC_SUM_NAMES_64 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
#define ZINC_SUMS_64 \
  "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[0][2]), "+f"(sum[0][3]), \
  "+f"(sum[1][0]), "+f"(sum[1][1]), "+f"(sum[1][2]), "+f"(sum[1][3]), \
  "+f"(sum[2][0]), "+f"(sum[2][1]), "+f"(sum[2][2]), "+f"(sum[2][3]), \
  "+f"(sum[3][0]), "+f"(sum[3][1]), "+f"(sum[3][2]), "+f"(sum[3][3]), \
  "+f"(sum[4][0]), "+f"(sum[4][1]), "+f"(sum[4][2]), "+f"(sum[4][3]), \
  "+f"(sum[5][0]), "+f"(sum[5][1]), "+f"(sum[5][2]), "+f"(sum[5][3]), \
  "+f"(sum[6][0]), "+f"(sum[6][1]), "+f"(sum[6][2]), "+f"(sum[6][3]), \
  "+f"(sum[7][0]), "+f"(sum[7][1]), "+f"(sum[7][2]), "+f"(sum[7][3])
#define ZINC_SUM_NAMES_128 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, " \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
#define ZINC_SUMS_128 \
  "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[0][2]), "+f"(sum[0][3]), \
  "+f"(sum[1][0]), "+f"(sum[1][1]), "+f"(sum[1][2]), "+f"(sum[1][3]), \
  "+f"(sum[2][0]), "+f"(sum[2][1]), "+f"(sum[2][2]), "+f"(sum[2][3]), \
  "+f"(sum[3][0]), "+f"(sum[3][1]), "+f"(sum[3][2]), "+f"(sum[3][3]), \
  "+f"(sum[4][0]), "+f"(sum[4][1]), "+f"(sum[4][2]), "+f"(sum[4][3]), \
  "+f"(sum[5][0]), "+f"(sum[5][1]), "+f"(sum[5][2]), "+f"(sum[5][3]), \
  "+f"(sum[6][0]), "+f"(sum[6][1]), "+f"(sum[6][2]), "+f"(sum[6][3]), \
  "+f"(sum[7][0]), "+f"(sum[7][1]), "+f"(sum[7][2]), "+f"(sum[7][3]), \
  "+f"(sum[8][0]), "+f"(sum[8][1]), "+f"(sum[8][2]), "+f"(sum[8][3]), \
  "+f"(sum[9][0]), "+f"(sum[9][1]), "+f"(sum[9][2]), "+f"(sum[9][3]), \
  "+f"(sum[10][0]), "+f"(sum[10][1]), "+f"(sum[10][2]), "+f"(sum[10][3]), \
  "+f"(sum[11][0]), "+f"(sum[11][1]), "+f"(sum[11][2]), "+f"(sum[11][3]), \
  "+f"(sum[12][0]), "+f"(sum[12][1]), "+f"(sum[12][2]), "+f"(sum[12][3]), \
  "+f"(sum[13][0]), "+f"(sum[13][1]), "+f"(sum[13][2]), "+f"(sum[13][3]), \
  "+f"(sum[14][0]), "+f"(sum[14][1]), "+f"(sum[14][2]), "+f"(sum[14][3]), \
  "+f"(sum[15][0]), "+f"(sum[15][1]), "+f"(sum[15][2]), "+f"(sum[15][3])

// The instruction with 64 or 128 columns; a is a descriptor, or in registers.
#define ZINC_WGMMA_64(type) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " \
               ZINC_SUM_NAMES_64 "%32, %33, p, 1, 1, %35, %36;\n}" \
               : ZINC_SUMS_64 \
               : "l"(a), "l"(b), "r"(adds ? 1 : 0), "n"(kLeftByRows ? 1 : 0), \
                 "n"(kByRows ? 1 : 0))
#define ZINC_WGMMA_64_OF_REGISTERS(type) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " \
               ZINC_SUM_NAMES_64 "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}" \
               : ZINC_SUMS_64 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds ? 1 : 0), "n"(kByRows ? 1 : 0))
#define ZINC_WGMMA_128(type) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " \
               ZINC_SUM_NAMES_128 "%64, %65, p, 1, 1, %67, %68;\n}" \
               : ZINC_SUMS_128 \
               : "l"(a), "l"(b), "r"(adds ? 1 : 0), "n"(kLeftByRows ? 1 : 0), \
                 "n"(kByRows ? 1 : 0))
#define ZINC_WGMMA_128_OF_REGISTERS(type) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " \
               ZINC_SUM_NAMES_128 "{%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}" \
               : ZINC_SUMS_128 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds ? 1 : 0), "n"(kByRows ? 1 : 0))

template <class T, bool kByRows, bool kLeftByRows>
__device__ __forceinline__ void wgmma(float (&sum)[8][4], uint64_t a, uint64_t b, bool adds) {
#if ZINC_HAS_SM90
  if constexpr (std::is_same_v<T, bf16>) {
    ZINC_WGMMA_64("bf16");
  } else {
    ZINC_WGMMA_64("f16");
  }
#endif
}
template <class T, bool kByRows, bool kLeftByRows>
__device__ __forceinline__ void wgmma(float (&sum)[8][4], const uint32_t (&a)[4], uint64_t b, bool adds) {
#if ZINC_HAS_SM90
  if constexpr (std::is_same_v<T, bf16>) {
    ZINC_WGMMA_64_OF_REGISTERS("bf16");
  } else {
    ZINC_WGMMA_64_OF_REGISTERS("f16");
  }
#endif
}
template <class T, bool kByRows, bool kLeftByRows>
__device__ __forceinline__ void wgmma(float (&sum)[16][4], uint64_t a, uint64_t b, bool adds) {
#if ZINC_HAS_SM90
  if constexpr (std::is_same_v<T, bf16>) {
    ZINC_WGMMA_128("bf16");
  } else {
    ZINC_WGMMA_128("f16");
  }
#endif
}
template <class T, bool kByRows, bool kLeftByRows>
__device__ __forceinline__ void wgmma(float (&sum)[16][4], const uint32_t (&a)[4], uint64_t b, bool adds) {
#if ZINC_HAS_SM90
  if constexpr (std::is_same_v<T, bf16>) {
    ZINC_WGMMA_128_OF_REGISTERS("bf16");
  } else {
    ZINC_WGMMA_128_OF_REGISTERS("f16");
  }
#endif
}
#undef ZINC_WGMMA_64
#undef ZINC_WGMMA_64_OF_REGISTERS
#undef ZINC_SUMS_64
#undef ZINC_SUM_NAMES_64
#undef ZINC_WGMMA_128
#undef ZINC_WGMMA_128_OF_REGISTERS
#undef ZINC_SUMS_128
#undef ZINC_SUM_NAMES_128
// clang-format on
#endif

// sum (+)= a b, 16 k deep, of T bf16 or f16; without `adds` what sum held is gone. `a`: a
// descriptor of rows by k, with kLeftByRows of k by rows, or four registers. `b`: a descriptor, of
// rows that are the columns of b (their k side by side), or with kByRows of rows that are its k.
template <class T, bool kByRows, bool kLeftByRows = false, int kTiles, class Left>
__device__ __forceinline__ void multiply_async(float (&sum)[kTiles][4], const Left& a, uint64_t b,
                                               bool adds) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
  constexpr bool kInRegisters = std::is_array_v<Left>;
  static_assert(!kInRegisters || !kLeftByRows);
#if defined(ZINC_CUDA_EMULATED)
  emulator::WarpgroupProduct product{
      .n = kTiles * 8, .adds = adds, .transpose_a = kLeftByRows, .transpose_b = kByRows, .b = b};
  product.type = std::is_same_v<T, bf16> ? emulator::MmaType::bf16 : emulator::MmaType::f16;
  const uint32_t* registers = nullptr;
  if constexpr (kInRegisters) {
    registers = a;
  } else {
    product.a = a;
  }
  emulator::warpgroup_multiply(product, &sum[0][0], registers);
#else
  wgmma<T, kByRows, kLeftByRows>(sum, a, b, adds);
#endif
}

}  // namespace zinc::kernels::cuda
