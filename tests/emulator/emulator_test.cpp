// The emulator fails where the execution model is broken, and only there. Each planted mistake
// stands beside the kernel that is right.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/tensor_core.h"
#include "kernels/cuda/warp.h"
#include "tests/emulator/seeded_runs.h"

namespace zinc::emulator {
namespace emulator_test {

using kernels::cuda::kFullWarp;
using testing::HasSubstr;

// Thread i writes its number and reads its neighbour's.
std::vector<std::string> exchange(bool with_barrier) {
  return failures([&] {
    std::vector<int> out(64, -1);
    run_grid(1, 64, 0, [&] {
      ZINC_SHARED(int, values, [64]);
      values[threadIdx.x] = static_cast<int>(threadIdx.x);
      if (with_barrier) __syncthreads();
      out[threadIdx.x] = values[(threadIdx.x + 1) % 64];
    });
    for (int i = 0; i < 64; ++i) {
      if (out[static_cast<size_t>(i)] != (i + 1) % 64) return false;
    }
    return true;
  });
}

TEST(Emulator, RaceOnSharedMemory_FailsWithin20Seeds) {
  EXPECT_THAT(exchange(false), testing::SizeIs(testing::Ge(1u)));
  EXPECT_THAT(exchange(true), testing::IsEmpty());
}

// Two rounds through one buffer need a barrier between the reads of one and the writes of the next.
std::vector<std::string> two_rounds(bool with_second_barrier) {
  return failures([&] {
    std::vector<int> out(96, 0);
    run_grid(1, 96, 0, [&] {
      ZINC_SHARED(int, values, [96]);
      const unsigned self = threadIdx.x;
      int sum = 0;
      for (int round = 1; round <= 2; ++round) {
        values[self] = round * static_cast<int>(self);
        __syncthreads();
        sum += values[95 - self];
        if (with_second_barrier) __syncthreads();
      }
      out[self] = sum;
    });
    for (int i = 0; i < 96; ++i) {
      if (out[static_cast<size_t>(i)] != 3 * (95 - i)) return false;
    }
    return true;
  });
}

TEST(Emulator, MissingBarrierBetweenRounds_FailsWithin20Seeds) {
  EXPECT_THAT(two_rounds(false), testing::SizeIs(testing::Ge(1u)));
  EXPECT_THAT(two_rounds(true), testing::IsEmpty());
}

// The same, where a warp reaches its next write after a dozen collectives: only a warp that is
// ahead of the others overwrites values that they have not read.
std::vector<std::string> two_sums(bool with_second_barrier) {
  return failures([&] {
    std::vector<int> out(128, 0);
    run_grid(1, 128, 0, [&] {
      ZINC_SHARED(int, sums, [4]);
      const unsigned self = threadIdx.x;
      int total = 0;
      for (int round = 1; round <= 2; ++round) {
        int sum = round;
        for (int i = 0; i < 12; ++i) sum = __shfl_xor_sync(0xffffffffu, sum, 1 << (i % 5));
        if (self % 32 == 0) sums[self / 32] = sum;
        __syncthreads();
        for (const int value : sums) total += value;
        if (with_second_barrier) __syncthreads();
      }
      out[self] = total;
    });
    return std::ranges::all_of(out, [](int total) { return total == 4 * (1 + 2); });
  });
}

TEST(Emulator, MissingBarrierBehindCollectives_FailsWithin20Seeds) {
  EXPECT_THAT(two_sums(false), testing::SizeIs(testing::Ge(1u)));
  EXPECT_THAT(two_sums(true), testing::IsEmpty());
}

// Each lane but the first (or the last) reads what its neighbour on that side has written.
TEST(Emulator, LanesRunInEveryOrder) {
  for (const int side : {-1, 1}) {
    const auto found = failures([&] {
      std::vector<int> out(32, 0);
      run_grid(1, 32, 0, [&] {
        ZINC_SHARED(int, values, [32]);
        const int self = static_cast<int>(threadIdx.x);
        const int other = self + side;
        values[self] = self;
        out[static_cast<size_t>(self)] = other < 0 || other > 31 ? other : values[other];
      });
      for (int i = 0; i < 32; ++i) {
        if (out[static_cast<size_t>(i)] != i + side) return false;
      }
      return true;
    });
    EXPECT_THAT(found, testing::SizeIs(testing::Ge(1u))) << side;
  }
}

TEST(Emulator, RaceBetweenBlocks_FailsWithin20Seeds) {
  const auto found = failures([&] {
    std::vector<int> out(8, 0);
    run_grid(8, 1, 0, [&] {
      const unsigned b = blockIdx.x;  // takes it for granted that the block before it has run
      __atomic_store_n(&out[b], b == 0 ? 1 : __atomic_load_n(&out[b - 1], __ATOMIC_RELAXED) + 1,
                       __ATOMIC_RELAXED);
    });
    return out[7] == 8;
  });
  EXPECT_THAT(found, testing::SizeIs(testing::Ge(1u)));
}

TEST(Emulator, DivergentShuffle_IsNamedWithItsPlace) {
  const auto shuffle_by = [&](bool divergent) {
    return failures([&] {
      bool right = true;
      run_grid(1, 32, 0, [&] {
        if (divergent && threadIdx.x >= 16) return;
        const int got = __shfl_xor_sync(kFullWarp, static_cast<int>(threadIdx.x), 1);
        if (got != static_cast<int>(threadIdx.x ^ 1u)) right = false;
      });
      return right;
    });
  };
  EXPECT_THAT(shuffle_by(false), testing::IsEmpty());
  const auto found = shuffle_by(true);
  ASSERT_EQ(found.size(), size_t{kSeeds});
  EXPECT_THAT(found[0], HasSubstr("16 in __shfl_xor_sync at "));
  EXPECT_THAT(found[0], HasSubstr("emulator_test.cpp:"));
}

TEST(Emulator, ShuffleOfALaneOutsideTheMask_IsPoison) {
  uint32_t got = 0;
  run_grid(1, 32, 0, [&] {
    if (threadIdx.x >= 16) return;
    const uint32_t value = __shfl_sync(0xffffu, uint32_t{threadIdx.x}, 20);
    if (threadIdx.x == 0) got = value;
  });
  EXPECT_EQ(got, 0xffffffffu);
}

TEST(Emulator, BarrierInABranch_IsAFault) {
  const auto found = failures([&] {
    run_grid(1, 64, 0, [&] {
      if (threadIdx.x < 40) __syncthreads();
    });
    return true;
  });
  ASSERT_EQ(found.size(), size_t{kSeeds});
  EXPECT_THAT(found[0], HasSubstr("40 in __syncthreads at "));
  const auto different = failures([&] {
    run_grid(1, 64, 0, [&] {
      if (threadIdx.x < 40) {
        __syncthreads();
      } else {
        __syncthreads();
      }
    });
    return true;
  });
  ASSERT_EQ(different.size(), size_t{kSeeds});
  EXPECT_THAT(different[0], HasSubstr("met in different barriers"));
}

TEST(Emulator, MisalignedLoad_IsAFault) {
  alignas(16) float values[8] = {};
  const auto load_at = [&](int offset) {
    return failures([&] {
      float got = 1.0f;
      run_grid(1, 1, 0, [&] { got = kernels::cuda::load_pack(values + offset).at[0]; });
      return got == 0.0f;
    });
  };
  EXPECT_THAT(load_at(4), testing::IsEmpty());
  EXPECT_THAT(load_at(1), testing::SizeIs(size_t{kSeeds}));
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(Emulator, WriteOutsideSharedMemory_IsAFault) {
  const auto write_at = [&](int index) {
    return failures([&] {
      run_grid(1, 32, 64 * sizeof(int), [&] {
        volatile int* values = kernels::cuda::dynamic_shared<int>();
        values[index] = 7;
      });
      return true;
    });
  };
  EXPECT_THAT(write_at(63), testing::IsEmpty());
  EXPECT_THAT(write_at(64), testing::SizeIs(size_t{kSeeds}));
  EXPECT_THAT(write_at(-1), testing::SizeIs(size_t{kSeeds}));
}
#else
TEST(EmulatorDeathTest, WriteOutsideSharedMemory_StopsUnderTheSanitizer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(run_grid(1, 32, 64 * sizeof(int),
                        [] {
                          volatile int* values = kernels::cuda::dynamic_shared<int>();
                          values[64] = 7;
                        }),
               "AddressSanitizer");
}
#endif

TEST(Emulator, SharedMemoryIsPoisonedInEveryBlock) {
  std::vector<float> seen(6, 0.0f);
  run_grid(6, 1, sizeof(float), [&] {
    ZINC_SHARED(float, value);
    seen[blockIdx.x] = value + kernels::cuda::dynamic_shared<float>()[0];
    value = 1.0f;
    kernels::cuda::dynamic_shared<float>()[0] = 1.0f;
  });
  for (const float value : seen) EXPECT_NE(value, value);
}

TEST(Emulator, VotesAndReductions) {
  run_grid(1, 64, 0, [&] {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const bool odd = lane % 2 != 0;
    EXPECT_EQ(__ballot_sync(kFullWarp, odd), 0xaaaaaaaau);
    EXPECT_EQ(__any_sync(kFullWarp, lane == 5), 1);
    EXPECT_EQ(__all_sync(kFullWarp, lane != 5), 0);
    EXPECT_EQ(__reduce_add_sync(kFullWarp, lane), 31 * 16);
    EXPECT_EQ(__reduce_max_sync(kFullWarp, -lane), 0);
    EXPECT_EQ(__reduce_min_sync(kFullWarp, -lane), -31);
    EXPECT_EQ(__shfl_up_sync(kFullWarp, lane, 3), lane < 3 ? lane : lane - 3);
    EXPECT_EQ(__shfl_down_sync(kFullWarp, lane, 3, 16), lane % 16 >= 13 ? lane : lane + 3);
    EXPECT_EQ(__syncthreads_count(threadIdx.x < 40), 40);
    EXPECT_EQ(__syncthreads_or(threadIdx.x == 63), 1);
    EXPECT_EQ(__syncthreads_and(threadIdx.x != 63), 0);
    EXPECT_EQ(__syncthreads_and(1), 1);
  });
}

TEST(Emulator, AtomicsOfManyBlocksAreWhole) {
  int sum = 0;
  run_grid(50, 64, 0, [&] { atomicAdd(&sum, 1); });
  EXPECT_EQ(sum, 50 * 64);
}

TEST(Emulator, LaunchesThatCudaRefuses) {
  const auto nothing = [] {};
  EXPECT_THROW(run_grid(1, 1025, 0, nothing), Fault);
  EXPECT_THROW(run_grid(0, 32, 0, nothing), Fault);
  EXPECT_THROW(run_grid(1, 32, kMaxSharedBytes + 1, nothing), Fault);
  EXPECT_THROW(run_grid(Size3(1, 70000), 32, 0, nothing), Fault);
  EXPECT_THROW(ids(), Fault);
}

// --- cp.async
// ---------------------------------------------------------------------------------------

// Two groups in flight; reads the first after `wait_first` groups of copies have been waited for.
std::vector<std::string> copy_and_read(bool wait_first, bool barrier) {
  return failures([&] {
    alignas(16) static float source[2][32 * 4];
    for (int i = 0; i < 2 * 128; ++i) source[i / 128][i % 128] = static_cast<float>(i + 1);
    std::vector<float> out(32, 0.0f);
    run_grid(1, 32, 0, [&] {
      ZINC_SHARED(float, tile, [2][32 * 4]);
      for (int stage = 0; stage < 2; ++stage) {
        kernels::cuda::copy_async_16(&tile[stage][4 * threadIdx.x],
                                     &source[stage][4 * threadIdx.x]);
        kernels::cuda::commit_copies();
      }
      if (wait_first) kernels::cuda::wait_copies<1>();
      if (barrier) __syncthreads();
      out[threadIdx.x] = tile[0][(4 * threadIdx.x + 4) % 128];
      kernels::cuda::wait_copies<0>();
    });
    for (int i = 0; i < 32; ++i) {
      if (out[static_cast<size_t>(i)] != static_cast<float>((4 * i + 4) % 128 + 1)) return false;
    }
    return true;
  });
}

TEST(Emulator, AsyncCopies_ArriveWithTheirGroup) {
  EXPECT_THAT(copy_and_read(true, true), testing::IsEmpty());
}
#if !defined(__SANITIZE_ADDRESS__)
TEST(Emulator, AsyncCopyReadBeforeItsWait_IsPoison) {
  EXPECT_THAT(copy_and_read(false, true), testing::SizeIs(size_t{kSeeds}));
  EXPECT_THAT(copy_and_read(true, false), testing::SizeIs(testing::Ge(1u)));
}
#else
TEST(EmulatorDeathTest, AsyncCopyReadBeforeItsWait_StopsUnderTheSanitizer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(copy_and_read(false, true), "AddressSanitizer: use-after-poison");
}
#endif

TEST(Emulator, CopiesThatNobodyWaitsFor_AreAFault) {
  alignas(16) float source[4] = {};
  const auto found = failures([&] {
    run_grid(1, 1, 0, [&] {
      ZINC_SHARED(float, tile, [4]);
      kernels::cuda::copy_async_16(tile, source);
      kernels::cuda::commit_copies();
    });
    return true;
  });
  ASSERT_EQ(found.size(), size_t{kSeeds});
  EXPECT_THAT(found[0], HasSubstr("has not waited for"));
}

// --- ldmatrix and mma ----------------------------------------------------------------------------

// [16, 16] * [16, 8] of small whole numbers: exact in any order. b is stored by rows, to be read
// transposed, or by columns.
template <class T>
void multiply_small_matrices(bool b_by_rows) {
  const auto a_at = [](int row, int k) { return (row * 5 + k * 3) % 7 - 3; };
  const auto b_at = [](int k, int column) { return (k * 2 + column * 3) % 9 - 4; };
  alignas(16) T a[16][16], b[16][16] = {};
  for (int i = 0; i < 256; ++i) {
    const int row = i / 16, column = i % 16;
    a[row][column] = T(static_cast<float>(a_at(row, column)));
    // Columns 8 to 15 of b go unused.
    const int value = b_by_rows ? b_at(row, column) : b_at(column, row % 8);
    b[row][column] = T(static_cast<float>(value));
  }
  float out[16][8] = {};
  run_grid(1, 32, 0, [&] {
    ZINC_SHARED(T, tile, [2][16][16]);
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = lane; i < 256; i += 32) {
      tile[0][i / 16][i % 16] = a[i / 16][i % 16];
      tile[1][i / 16][i % 16] = b[i / 16][i % 16];
    }
    __syncwarp();
    uint32_t left[4], right[4];
    kernels::cuda::load_matrices(left, &tile[0][lane % 16][lane / 16 * 8]);
    if (b_by_rows) {
      kernels::cuda::load_matrices_transposed(right, &tile[1][lane % 16][lane / 16 * 8]);
    } else {
      kernels::cuda::load_matrices(right, &tile[1][lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
    }
    float sum[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    kernels::cuda::multiply_add<T>(sum, left, right[0], right[1]);
    for (int e = 0; e < 4; ++e) out[lane / 4 + e / 2 * 8][lane % 4 * 2 + e % 2] = sum[e];
  });
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      int expected = 1;
      for (int k = 0; k < 16; ++k) expected += a_at(row, k) * b_at(k, column);
      EXPECT_EQ(out[row][column], static_cast<float>(expected)) << row << " " << column;
    }
  }
}

TEST(Emulator, ProductsOfTensorCores_MatchLoops) {
  multiply_small_matrices<bf16>(false);
  multiply_small_matrices<bf16>(true);
  multiply_small_matrices<f16>(false);
  multiply_small_matrices<f16>(true);
}

TEST(Emulator, DivergentProduct_IsNamed) {
  const auto found = failures([&] {
    run_grid(1, 32, 0, [&] {
      float sum[4] = {};
      if (threadIdx.x % 2 == 0) kernels::cuda::multiply_add<bf16>(sum, {0, 0, 0, 0}, 0, 0);
    });
    return true;
  });
  ASSERT_EQ(found.size(), size_t{kSeeds});
  EXPECT_THAT(found[0], HasSubstr("16 in mma at "));
}

// The failures of a warp that reads matrices whose rows lie `stride` bytes apart, `shift` bytes
// behind the beginning of 1 KiB of shared memory, and how many rows met another one's banks.
std::pair<std::vector<std::string>, uint64_t> read_matrices(int stride, int shift) {
  const uint64_t before = tensor_core_use().bank_conflicts;
  auto found = failures([&] {
    run_grid(1, 32, 1024, [&] {
      auto* bytes = kernels::cuda::dynamic_shared<std::byte>();
      const int lane = static_cast<int>(threadIdx.x);
      uint32_t values[4];
      kernels::cuda::load_matrices(values, bytes + shift + lane % 8 * stride);
    });
    return true;
  });
  return {found, tensor_core_use().bank_conflicts - before};
}

TEST(Emulator, MatricesOutsideSharedMemoryOrMisaligned_AreFaults) {
  EXPECT_THAT(read_matrices(16, 1024 - 7 * 16 - 16).first, testing::IsEmpty());
  const auto outside = read_matrices(16, 1024 - 7 * 16).first;
  ASSERT_EQ(outside.size(), size_t{kSeeds});
  EXPECT_THAT(outside[0], HasSubstr("ldmatrix reads outside shared memory"));
  const auto misaligned = read_matrices(16, 8).first;
  ASSERT_EQ(misaligned.size(), size_t{kSeeds});
  EXPECT_THAT(misaligned[0], HasSubstr("ldmatrix: the address is not aligned to 16 bytes"));
}

TEST(Emulator, BankConflictsOfMatrices_AreCounted) {
  EXPECT_EQ(read_matrices(16, 0).second, 0u);
  EXPECT_EQ(read_matrices(80, 0).second, 0u);
  EXPECT_EQ(read_matrices(0, 0).second, 0u);  // one address: a broadcast
  EXPECT_EQ(read_matrices(128, 0).second, uint64_t{kSeeds} * 4 * 7);
  EXPECT_EQ(read_matrices(32, 0).second, uint64_t{kSeeds} * 4 * 4);
}

// One warp copies a tile, another reads it with ldmatrix.
std::vector<std::string> copy_and_load(bool wait, bool barrier) {
  return failures([&] {
    alignas(16) static bf16 source[8 * 8];
    for (int i = 0; i < 64; ++i) source[i] = bf16(static_cast<float>(i));
    bool right = true;
    run_grid(1, 64, 0, [&] {
      ZINC_SHARED(bf16, tile, [8 * 8]);
      const int tid = static_cast<int>(threadIdx.x);
      if (tid < 8) kernels::cuda::copy_async_16(tile + 8 * tid, source + 8 * tid);
      kernels::cuda::commit_copies();
      if (wait) kernels::cuda::wait_copies<0>();
      if (barrier) __syncthreads();
      if (tid >= 32) {
        uint32_t values[4];
        kernels::cuda::load_matrices(values, tile + tid % 8 * 8);
        const auto bits = static_cast<uint16_t>(values[0] & 0xffffu);
        const int at = tid % 32 / 4 * 8 + tid % 4 * 2;
        if (bits != bf16(static_cast<float>(at)).bits) right = false;
      }
      __syncthreads();  // the copies are not complete before all have read
      kernels::cuda::wait_copies<0>();
    });
    return right;
  });
}

TEST(Emulator, MatricesOfCopies_ComeAfterWaitAndBarrier) {
  EXPECT_THAT(copy_and_load(true, true), testing::IsEmpty());
}
#if !defined(__SANITIZE_ADDRESS__)
TEST(Emulator, MatricesOfCopiesWithoutWaitOrBarrier_ArePoison) {
  EXPECT_THAT(copy_and_load(false, true), testing::SizeIs(size_t{kSeeds}));
  EXPECT_THAT(copy_and_load(true, false), testing::SizeIs(testing::Ge(1u)));
}
#else
TEST(EmulatorDeathTest, MatricesOfCopiesWithoutWait_StopUnderTheSanitizer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(copy_and_load(false, true), "AddressSanitizer: use-after-poison");
}
#endif

}  // namespace emulator_test
}  // namespace zinc::emulator
