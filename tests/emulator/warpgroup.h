// tests/emulator/warpgroup.h: wgmma: what four warps together give to their tensor cores, and how
// many registers they keep.
//
// Products are done as late as the model allows, at the wait that covers their group: from then on
// their sums can be read, before it they are NaN. Operands are read then, too: shared memory as the
// asynchronous proxy sees it, registers as they are. A warp's rows need no other warp; that all
// four have issued as many products is checked when the block ends.
#pragma once

#include <cstdint>
#include <source_location>

#include "tests/emulator/tensor_core.h"

namespace zinc::emulator {

// wgmma.mma_async .m64nNk16: sum[64, n] (+)= a[64, 16] * b[16, n], f32.
struct WarpgroupProduct {
  MmaType type = MmaType::bf16;
  int n = 8;                 // a multiple of 8, up to 256
  bool adds = true;          // scale-d: false overwrites the sum
  bool transpose_a = false;  // a has its rows side by side in memory, not its k
  bool transpose_b = false;  // b has its columns side by side in memory, not its k
  uint64_t a = 0;            // matrix descriptors
  uint64_t b = 0;
};

// Lane l of warp w has sum[4 c + e]: row 16 w + l / 4 + 8 (e / 2), column 8 c + 2 (l % 4) + e % 2.
// `a`: four registers as mma has them, read at the wait; null: a is in shared memory. A fault where
// no fence_products() has come since the last commit.
void warpgroup_multiply(const WarpgroupProduct& product, float* sum, const uint32_t* a,
                        std::source_location where = std::source_location::current());
void fence_products(std::source_location where = std::source_location::current());
void commit_products(std::source_location where = std::source_location::current());
void wait_products(int pending, std::source_location where = std::source_location::current());

// setmaxnreg. A block's warps may not have more than 64 Ki registers together when it ends.
void set_registers(int count, std::source_location where = std::source_location::current());

// Element (row, k) of a matrix that a descriptor names: an address of shared memory. `by_k`: the k
// of a row lie side by side.
uint32_t element_address(uint64_t descriptor, bool by_k, int row, int k);

// wgmma instructions of a warp since the program began.
uint64_t warpgroup_products();

}  // namespace zinc::emulator
