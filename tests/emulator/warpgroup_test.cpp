// mbarrier, TMA and wgmma on the emulator: what is right gives the right numbers under every seed,
// and each planted mistake is found.
#include <cuda.h>
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/bulk_copy.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/warpgroup.h"
#include "tests/emulator/seeded_runs.h"

namespace zinc::emulator {
namespace warpgroup_test {

using namespace kernels::cuda;
// The emulator has functions of the same names; these are kernels/cuda's.
using kernels::cuda::commit_products;
using kernels::cuda::dynamic_shared;
using kernels::cuda::set_registers;
using kernels::cuda::wait_products;
using testing::Contains;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kColumns = 64;  // of a tile: 128 bytes
constexpr size_t kTileBytes = kColumns * kColumns * 2;

// [rows, 64] of whole numbers from -4 to 4: products of 64 are exact in any order.
struct Matrix {
  int rows;
  std::vector<bf16> values;

  Matrix(int count, int seed) : rows(count) {
    for (int i = 0; i < rows * kColumns; ++i) {
      values.emplace_back(static_cast<float>((i * 7 + i / 64 * 3 + seed * 5) % 9 - 4));
    }
  }
  float at(int row, int column) const {
    return static_cast<float>(values[static_cast<size_t>(row * kColumns + column)]);
  }
  CUtensorMap map(CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) const {
    const cuuint64_t extents[] = {kColumns, static_cast<cuuint64_t>(rows), 1, 1};
    const cuuint64_t strides[] = {kColumns * 2, kColumns * 2, kColumns * 2};
    const cuuint32_t box[] = {kColumns, kColumns, 1, 1}, each[] = {1, 1, 1, 1};
    CUtensorMap made;
    EXPECT_EQ(cuTensorMapEncodeTiled(
                  &made, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<bf16*>(values.data()),
                  extents, strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              CUDA_SUCCESS);
    return made;
  }
};

// --- Copies of boxes and their barriers --------------------------------------------------------

enum class CopyFault {
  none,
  no_fence_of_barriers,
  no_barrier_of_the_block,
  no_wait,
  too_few_bytes,
  too_many_bytes,
  too_many_arrivals,
  wrong_parity,
  nobody_waits,
};

// 64 rows from `first` on, which all threads read behind the barrier.
std::vector<std::string> copy_and_read(CopyFault fault, int first = 0) {
  const Matrix from(64, 1);
  const CUtensorMap map = from.map(CU_TENSOR_MAP_SWIZZLE_NONE);
  return failures([&] {
    bool right = true;
    run_grid(1, 64, kTileBytes + 8, [&] {
      auto* tile = dynamic_shared<bf16>();
      auto& barrier = *reinterpret_cast<BulkBarrier*>(tile + kTileBytes / 2);
      if (threadIdx.x == 0) {
        init(barrier, 1);
        if (fault != CopyFault::no_fence_of_barriers) fence_barriers();
      }
      if (fault != CopyFault::no_barrier_of_the_block) __syncthreads();
      if (threadIdx.x == 0) {
        const int off = fault == CopyFault::too_few_bytes    ? -2
                        : fault == CopyFault::too_many_bytes ? 2
                                                             : 0;
        arrive_expecting(barrier, static_cast<uint32_t>(static_cast<int>(kTileBytes) + off));
        if (fault == CopyFault::too_many_arrivals) arrive(barrier);
        copy_box(tile, map, barrier, 0, first, 0, 0);
      }
      if (fault == CopyFault::nobody_waits) return;
      if (fault != CopyFault::no_wait) wait(barrier, fault == CopyFault::wrong_parity ? 1 : 0);
      for (int i = 0; i < kColumns; ++i) {
        const int row = first + static_cast<int>(threadIdx.x);
        const float expected = row >= 0 && row < from.rows ? from.at(row, i) : 0.0f;
        if (static_cast<float>(tile[threadIdx.x * kColumns + static_cast<unsigned>(i)]) !=
            expected) {
          right = false;
        }
      }
      wait(barrier, 0);  // the copy is over before the block ends
    });
    return right;
  });
}

TEST(BulkCopy, BringsABoxWithZerosOutsideTheTensor) {
  EXPECT_THAT(copy_and_read(CopyFault::none), IsEmpty());
  EXPECT_THAT(copy_and_read(CopyFault::none, 40), IsEmpty());
  EXPECT_THAT(copy_and_read(CopyFault::none, -10), IsEmpty());
}
TEST(BulkCopy, PlantedFaultsAreFound) {
  EXPECT_THAT(copy_and_read(CopyFault::no_fence_of_barriers),
              Each(HasSubstr("whose initialisation no fence has published")));
  EXPECT_THAT(copy_and_read(CopyFault::no_fence_of_barriers), SizeIs(kSeeds));
  EXPECT_THAT(copy_and_read(CopyFault::no_barrier_of_the_block),
              Contains(HasSubstr("an mbarrier is used that is not initialised")));
  EXPECT_THAT(copy_and_read(CopyFault::too_few_bytes),
              Contains(HasSubstr("in an mbarrier at ")).Times(kSeeds));
  EXPECT_THAT(copy_and_read(CopyFault::too_many_bytes),
              Contains(HasSubstr("in an mbarrier at ")).Times(kSeeds));
  EXPECT_THAT(copy_and_read(CopyFault::too_many_arrivals),
              Contains(HasSubstr("more arrivals at an mbarrier than the 1")).Times(kSeeds));
  EXPECT_THAT(copy_and_read(CopyFault::nobody_waits),
              Contains(HasSubstr("ends while bulk copies write")).Times(Ge(kSeeds / 2)));
}
#if !defined(__SANITIZE_ADDRESS__)  // the sanitizer would stop at the read
TEST(BulkCopy, BytesBeforeTheWaitArePoison) {
  EXPECT_THAT(copy_and_read(CopyFault::no_wait), Contains("wrong values").Times(Ge(kSeeds / 2)));
  EXPECT_THAT(copy_and_read(CopyFault::wrong_parity), SizeIs(kSeeds));
}
#endif

// A ring of two tiles that one thread fills and the others read, six times.
std::vector<std::string> ring(bool waits_for_readers) {
  constexpr int kRounds = 6, kStages = 2;
  const Matrix from(64 * kRounds, 2);
  const CUtensorMap map = from.map(CU_TENSOR_MAP_SWIZZLE_NONE);
  return failures([&] {
    bool right = true;
    run_grid(1, 128, kStages * (kTileBytes + 16), [&] {
      auto* tiles = dynamic_shared<bf16>();
      auto* full = reinterpret_cast<BulkBarrier*>(tiles + kStages * kTileBytes / 2);
      auto* empty = full + kStages;
      if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) {
          init(full[stage], 1);
          init(empty[stage], 64);
        }
        fence_barriers();
      }
      __syncthreads();
      for (int round = 0; round < kRounds; ++round) {
        const int stage = round % kStages;
        const auto parity = static_cast<uint32_t>(round / kStages % 2);
        bf16* tile = tiles + stage * static_cast<int>(kTileBytes / 2);
        if (threadIdx.x == 0) {
          if (waits_for_readers) wait(empty[stage], parity ^ 1u);
          arrive_expecting(full[stage], kTileBytes);
          copy_box(tile, map, full[stage], 0, round * kColumns, 0, 0);
        }
        if (threadIdx.x < 64) continue;
        wait(full[stage], parity);
        const int row = static_cast<int>(threadIdx.x) - 64;
        for (int i = 0; i < kColumns; ++i) {
          if (static_cast<float>(tile[row * kColumns + i]) != from.at(round * kColumns + row, i)) {
            right = false;
          }
        }
        arrive(empty[stage]);
      }
    });
    return right;
  });
}
TEST(BulkCopy, PhasesOfARing) {
  EXPECT_THAT(ring(true), IsEmpty());
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_THAT(ring(false), SizeIs(kSeeds));
#endif
}

TEST(BulkCopy, SwizzleMovesChunksWithinARow) {
  for (const auto& [mode, bytes] : {std::pair{CU_TENSOR_MAP_SWIZZLE_32B, 32},
                                    {CU_TENSOR_MAP_SWIZZLE_64B, 64},
                                    {CU_TENSOR_MAP_SWIZZLE_128B, 128}}) {
    const int columns = bytes / 2;
    std::vector<bf16> values;
    for (int i = 0; i < 64 * columns; ++i) values.emplace_back(static_cast<float>(i % 251));
    const auto of_row = static_cast<cuuint64_t>(bytes);
    const cuuint64_t extents[] = {of_row / 2, 64, 1, 1}, strides[] = {of_row, of_row, of_row};
    const cuuint32_t box[] = {static_cast<cuuint32_t>(columns), 64, 1, 1}, each[] = {1, 1, 1, 1};
    CUtensorMap map;
    ASSERT_EQ(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, values.data(),
                                     extents, strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                     mode, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              CUDA_SUCCESS);
    bool right = true;
    run_grid(1, 32, kTileBytes + 8, [&] {
      auto* tile = dynamic_shared<bf16>();
      auto& barrier = *reinterpret_cast<BulkBarrier*>(tile + kTileBytes / 2);
      if (threadIdx.x != 0) return;
      init(barrier, 1);
      fence_barriers();
      arrive_expecting(barrier, static_cast<uint32_t>(64 * bytes));
      copy_box(tile, map, barrier, 0, 0, 0, 0);
      wait(barrier, 0);
      for (int i = 0; i < 64 * columns; ++i) {
        // The patterns as tables draw them: a chunk of 16 bytes, by the lines of 128 bytes.
        const int chunk = i / 8, line = chunk / 8;
        const int key = bytes == 128 ? line % 8 : bytes == 64 ? line % 8 / 2 : line % 8 / 4;
        const int place = (chunk ^ key) * 8 + i % 8;
        if (bytes == 128 && tile[place].bits != values[static_cast<size_t>(i)].bits) right = false;
        if (bytes != 128) {
          const int by_address =
              static_cast<int>(swizzled_address(static_cast<uintptr_t>(i) * 2, bytes) / 2);
          if (tile[by_address].bits != values[static_cast<size_t>(i)].bits) right = false;
        }
      }
    });
    EXPECT_TRUE(right) << bytes;
  }
}

TEST(BulkCopy, MapsThatADriverRefuses) {
  const auto encode = [&](size_t first, cuuint64_t stride, cuuint32_t columns, cuuint32_t rows) {
    const cuuint64_t extents[] = {64, 8, 1, 1}, strides[] = {stride, stride, stride};
    const cuuint32_t box[] = {columns, rows, 1, 1}, each[] = {1, 1, 1, 1};
    CUtensorMap map;
    alignas(16) static bf16 aligned[4096];
    return cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, aligned + first,
                                  extents, strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  EXPECT_EQ(encode(0, 128, 64, 8), CUDA_SUCCESS);
  EXPECT_EQ(encode(4, 128, 64, 8), CUDA_ERROR_INVALID_VALUE);    // address
  EXPECT_EQ(encode(0, 136, 64, 8), CUDA_ERROR_INVALID_VALUE);    // stride
  EXPECT_EQ(encode(0, 128, 128, 8), CUDA_ERROR_INVALID_VALUE);   // a row longer than the swizzle
  EXPECT_EQ(encode(0, 128, 60, 8), CUDA_ERROR_INVALID_VALUE);    // a row of no whole chunks
  EXPECT_EQ(encode(0, 128, 64, 257), CUDA_ERROR_INVALID_VALUE);  // rows
}

// --- Named barriers ----------------------------------------------------------------------------

// Warps 0 and 1 write by turns what the other one reads.
std::vector<std::string> take_turns(bool waits, bool last_arrives) {
  return failures([&] {
    bool right = true;
    run_grid(1, 64, 0, [&] {
      ZINC_SHARED(int, number, [1]);
      const int me = static_cast<int>(threadIdx.x) / 32;
      if (me == 1) arrive_threads(1, 64);
      for (int round = 0; round < 3; ++round) {
        if (waits) sync_threads(1 + me, 64);
        if (threadIdx.x % 32 == 0) {
          const int turn = 2 * round + me;
          if (turn > 0 && number[0] != turn - 1) right = false;
          number[0] = turn;
        }
        __syncwarp();
        if (round < 2 || me == 0 || last_arrives) arrive_threads(1 + (me + 1) % 2, 64);
      }
    });
    return right;
  });
}
TEST(NamedBarrier, GivesTurns) {
  EXPECT_THAT(take_turns(true, false), IsEmpty());
  EXPECT_THAT(take_turns(true, true),
              Contains(HasSubstr("that nobody has waited for")).Times(kSeeds));
  EXPECT_THAT(take_turns(false, false), SizeIs(kSeeds));
}

// --- wgmma ---------------------------------------------------------------------------------------

enum class ProductFault {
  none,
  no_fence,
  no_wait,
  no_commit,
  reads_before_the_wait,
  overwrites_registers,
  overwrites_keys,
  thread_overwrites_keys,
  no_wait_for_the_copy,
  one_warp_does_not_multiply,
};

struct ProductCase {
  bool left_in_registers = false;
  bool right_by_rows = false;
  bool adds = false;
};

// [64, 64] times [64, 64] (transposed unless by rows) by one warpgroup.
std::vector<std::string> multiply(const ProductCase& c, ProductFault fault) {
  const Matrix left(64, 3), right(64, 4);
  const CUtensorMap left_map = left.map(), right_map = right.map();
  return failures([&] {
    bool good = true;
    run_grid(1, kWarpgroup, 2 * kTileBytes + 16, [&] {
      auto* a = dynamic_shared<bf16>();
      bf16* b = a + kTileBytes / 2;
      auto* barriers = reinterpret_cast<BulkBarrier*>(b + kTileBytes / 2);
      const int thread = static_cast<int>(threadIdx.x);
      const int warp = thread / 32, lane = thread % 32;
      if (thread == 0) {
        init(barriers[0], 1);
        init(barriers[1], 1);
        fence_barriers();
        arrive_expecting(barriers[0], 2 * kTileBytes);
        copy_box(a, left_map, barriers[0], 0, 0, 0, 0);
        copy_box(b, right_map, barriers[0], 0, 0, 0, 0);
      }
      __syncthreads();
      if (fault != ProductFault::no_wait_for_the_copy) wait(barriers[0], 0);
      float sum[8][4];
      for (auto& tile : sum) {
        for (float& value : tile) value = 1.0f;
      }
      uint32_t registers[4][4];
      for (int k = 0; k < 4; ++k) {
        for (int r = 0; r < 4; ++r) {
          const int row = warp * 16 + lane / 4 + r % 2 * 8;
          const int column = k * 16 + lane % 4 * 2 + r / 2 * 8;
          registers[k][r] =
              bf16(left.at(row, column)).bits | uint32_t{bf16(left.at(row, column + 1)).bits} << 16;
        }
      }
      if (fault == ProductFault::one_warp_does_not_multiply && warp == 2) return;
      if (fault != ProductFault::no_fence) begin_products();
      for (int k = 0; k < 4; ++k) {
        const bool adds = c.adds || k > 0;
        const uint64_t of_b =
            c.right_by_rows ? tile_descriptor(b, k * 16 * kColumns) : tile_descriptor(b, k * 16);
        if (c.left_in_registers && c.right_by_rows) {
          multiply_async<bf16, true>(sum, registers[k], of_b, adds);
        } else if (c.left_in_registers) {
          multiply_async<bf16, false>(sum, registers[k], of_b, adds);
        } else if (c.right_by_rows) {
          multiply_async<bf16, true>(sum, tile_descriptor(a, k * 16), of_b, adds);
        } else {
          multiply_async<bf16, false>(sum, tile_descriptor(a, k * 16), of_b, adds);
        }
      }
      if (fault != ProductFault::no_commit) commit_products();
      if (fault == ProductFault::overwrites_registers) registers[1][2] = 0;
      if (fault == ProductFault::overwrites_keys && thread == 0) {
        arrive_expecting(barriers[1], kTileBytes);
        copy_box(b, left_map, barriers[1], 0, 0, 0, 0);
        wait(barriers[1], 0);
      }
      if (fault == ProductFault::thread_overwrites_keys && thread == 0) b[5] = bf16(9.0f);
      const float early = sum[3][1];
      if (fault != ProductFault::no_wait) wait_products<0>();
      if (fault == ProductFault::reads_before_the_wait) sum[3][1] = early;
      for (int i = 0; i < 32; ++i) {
        const int row = warp * 16 + lane / 4 + i % 4 / 2 * 8,
                  column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float expected = c.adds ? 1.0f : 0.0f;
        for (int k = 0; k < 64; ++k) {
          expected +=
              left.at(row, k) * (c.right_by_rows ? right.at(k, column) : right.at(column, k));
        }
        if (sum[i / 4][i % 4] != expected) good = false;
      }
    });
    return good;
  });
}

TEST(WarpgroupProducts, MatchLoops) {
  for (const bool left : {false, true}) {
    for (const bool by_rows : {false, true}) {
      for (const bool adds : {false, true}) {
        EXPECT_THAT(multiply({left, by_rows, adds}, ProductFault::none), IsEmpty())
            << left << by_rows << adds;
      }
    }
  }
}

TEST(WarpgroupProducts, PlantedFaultsAreFound) {
  const ProductCase shared{}, registers{.left_in_registers = true};
  const auto in_all = [](const char* text) { return Contains(HasSubstr(text)).Times(kSeeds); };
  EXPECT_THAT(multiply(shared, ProductFault::no_fence), in_all("without a wgmma.fence"));
  EXPECT_THAT(multiply(shared, ProductFault::no_wait), in_all("that it has not waited for"));
  EXPECT_THAT(multiply(shared, ProductFault::no_commit), in_all("that it has not waited for"));
  EXPECT_THAT(multiply(shared, ProductFault::reads_before_the_wait), in_all("wrong values"));
  EXPECT_THAT(multiply(registers, ProductFault::overwrites_registers), in_all("wrong values"));
  EXPECT_THAT(multiply(shared, ProductFault::overwrites_keys), SizeIs(Ge(size_t{kSeeds} / 2)));
  EXPECT_THAT(multiply(shared, ProductFault::thread_overwrites_keys),
              in_all("that threads have written"));
  EXPECT_THAT(multiply(shared, ProductFault::no_wait_for_the_copy),
              Contains(HasSubstr("that a bulk copy still writes")).Times(Ge(1)));
  EXPECT_THAT(multiply(shared, ProductFault::one_warp_does_not_multiply),
              in_all("different numbers of wgmma"));
}

// A tile that threads have written: what wgmma reads of it.
std::vector<std::string> multiply_written_tile(bool fence) {
  return failures([&] {
    bool good = true;
    run_grid(1, kWarpgroup, 2 * kTileBytes, [&] {
      auto* a = dynamic_shared<bf16>();
      for (unsigned i = threadIdx.x; i < kTileBytes; i += kWarpgroup) a[i] = bf16(1.0f);
      if (fence) fence_async_proxy();
      __syncthreads();
      float sum[8][4];
      begin_products();
      multiply_async<bf16, false>(sum, tile_descriptor(a, 0),
                                  tile_descriptor(a + kTileBytes / 2, 0), false);
      commit_products();
      wait_products<0>();
      for (const auto& tile : sum) {
        for (const float value : tile) good = good && value == 16.0f;
      }
    });
    return good;
  });
}
TEST(WarpgroupProducts, ThreadsWritesNeedAProxyFence) {
  EXPECT_THAT(multiply_written_tile(true), IsEmpty());
  EXPECT_THAT(multiply_written_tile(false),
              Contains(HasSubstr("without fence.proxy.async")).Times(kSeeds));
}

// Two groups of products on two sums, of which the second may be under way.
TEST(WarpgroupProducts, WaitLeavesTheNewestGroups) {
  const auto found = failures([&] {
    bool good = true;
    run_grid(1, kWarpgroup, 2 * kTileBytes, [&] {
      auto* a = dynamic_shared<bf16>();
      for (unsigned i = threadIdx.x; i < kTileBytes; i += kWarpgroup) a[i] = bf16(1.0f);
      fence_async_proxy();
      __syncthreads();
      float first[8][4], second[8][4];
      const uint64_t of_a = tile_descriptor(a, 0), of_b = tile_descriptor(a + kTileBytes / 2, 0);
      begin_products();
      multiply_async<bf16, false>(first, of_a, of_b, false);
      commit_products();
      begin_products();
      multiply_async<bf16, false>(second, of_a, of_b, false);
      multiply_async<bf16, false>(second, of_a, of_b, true);
      commit_products();
      wait_products<1>();
      good = good && first[2][1] == 16.0f && second[2][1] != second[2][1];
      wait_products<0>();
      good = good && second[2][1] == 32.0f;
    });
    return good;
  });
  EXPECT_THAT(found, IsEmpty());
}

TEST(WarpgroupProducts, LanesWithDifferentOperandsAreAFault) {
  EXPECT_THAT(failures([&] {
                run_grid(1, kWarpgroup, 2 * kTileBytes, [&] {
                  auto* a = dynamic_shared<bf16>();
                  float sum[8][4];
                  begin_products();
                  multiply_async<bf16, false>(sum, tile_descriptor(a, threadIdx.x == 5 ? 16 : 0),
                                              tile_descriptor(a, 0), false);
                  commit_products();
                  wait_products<0>();
                });
                return true;
              }),
              Contains(HasSubstr("give it different operands")).Times(kSeeds));
}

// Every mode of a descriptor against the layouts that PTX draws: distances between neighbours.
TEST(WarpgroupProducts, DescriptorsNameElements) {
  const auto descriptor = [](uint64_t mode, uint64_t start, uint64_t leading, uint64_t stride) {
    return mode << 62 | stride / 16 << 32 | leading / 16 << 16 | start / 16;
  };
  // Without a swizzle: cores of 8 x 16 bytes.
  EXPECT_EQ(element_address(descriptor(0, 1024, 256, 512), true, 0, 0), 1024u);
  EXPECT_EQ(element_address(descriptor(0, 1024, 256, 512), true, 3, 1), 1024u + 3 * 16 + 2);
  EXPECT_EQ(element_address(descriptor(0, 1024, 256, 512), true, 8, 8), 1024u + 512 + 256);
  EXPECT_EQ(element_address(descriptor(0, 1024, 256, 512), false, 9, 3), 1024u + 512 + 3 * 16 + 2);
  // 128 bytes, k side by side: row 5's chunk 2 lies at 2 ^ 5.
  EXPECT_EQ(element_address(descriptor(1, 1024 + 32, 0, 1024), true, 5, 1),
            1024u + 5 * 128 + (2 ^ 5) * 16 + 2);
  EXPECT_EQ(element_address(descriptor(1, 1024, 0, 2048), true, 8, 0), 1024u + 2048);
  // 128 bytes, rows side by side: 64 of them, then the next tile; eight k, then the stride.
  EXPECT_EQ(element_address(descriptor(1, 1024, 8192, 1024), false, 64, 9),
            1024u + 8192 + 1024 + 128 + (0 ^ 1) * 16);
  EXPECT_EQ(element_address(descriptor(1, 1024, 8192, 1024), false, 8, 2),
            1024u + 2 * 128 + (1 ^ 2) * 16);
  // 64 and 32 bytes: the key is bits 7 and 8, or 7.
  EXPECT_EQ(element_address(descriptor(2, 1024, 0, 512), true, 3, 8),
            1024u + 3 * 64 + (((3 * 64 + 16) / 16 % 4) ^ 1) * 16 - 0u);
  EXPECT_EQ(element_address(descriptor(3, 1024, 0, 256), true, 5, 0), 1024u + 5 * 32 + 16);
  EXPECT_THROW(element_address(descriptor(1, 1024 + 128, 0, 1024), true, 0, 0), Fault);
}

TEST(WarpgroupRegisters, MayNotBeMoreThanThereAre) {
  const auto take = [](int rest) {
    return failures([&] {
      run_grid(1, 3 * kWarpgroup, 0, [&] {
        if (threadIdx.x < kWarpgroup) {
          set_registers<24, false>();
        } else if (rest == 240) {
          set_registers<240, true>();
        } else {
          set_registers<248, true>();
        }
      });
      return true;
    });
  };
  EXPECT_THAT(take(240), IsEmpty());
  EXPECT_THAT(take(248), Contains(HasSubstr("registers of 65536")).Times(kSeeds));
}

}  // namespace warpgroup_test
}  // namespace zinc::emulator
