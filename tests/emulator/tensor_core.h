// tests/emulator/tensor_core.h: what a warp does together with its tensor cores: ldmatrix and mma.
// All 32 lanes take part; a warp that comes with fewer is stuck and says so.
#pragma once

#include <cstdint>

namespace zinc::emulator {

// ldmatrix .x4 of 8 x 8 elements of 16 bits: lane l gives the address of row l % 8 of matrix l / 8,
// 16 bytes of shared memory, aligned to 16. Lane l gets, of each matrix, elements 2 (l % 4) and
// the next of row l / 4; with `transposed`, of its transpose.
void load_matrices(const void* row, bool transposed, uint32_t (&out)[4]);

enum class MmaType { bf16, f16 };

// mma .m16n8k16, row by column: sum[16, 8] += a[16, 16] * b[16, 8], the fragments laid out as PTX
// has them. In f32: the sum so far, then the products in the order of k.
void multiply_add(MmaType type, float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

// Counts over all launches since the program began.
struct TensorCoreUse {
  uint64_t products = 0;        // mma instructions of a warp
  uint64_t bank_conflicts = 0;  // rows of ldmatrix that came to banks which another row of their
                                // matrix had taken
};
TensorCoreUse tensor_core_use();

}  // namespace zinc::emulator
