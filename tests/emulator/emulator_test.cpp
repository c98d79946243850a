// The emulator fails where the execution model is broken, and only there. Each planted mistake
// stands beside the kernel that is right.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/warp.h"

namespace zinc::emulator {
namespace {

using kernels::cuda::kFullWarp;
using testing::HasSubstr;

constexpr int kSeeds = 20;

// What went wrong under each seed: a Fault's message, or "wrong values"; empty strings are good
// runs.
std::vector<std::string> failures(const std::function<bool()>& run_and_check) {
  std::vector<std::string> result;
  for (int seed = 0; seed < kSeeds; ++seed) {
    set_seed(static_cast<uint64_t>(seed));
    try {
      if (!run_and_check()) result.emplace_back("wrong values");
    } catch (const Fault& fault) {
      result.emplace_back(fault.what());
    }
  }
  return result;
}

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

}  // namespace
}  // namespace zinc::emulator
