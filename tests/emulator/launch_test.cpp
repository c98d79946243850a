// The emulator refuses the launches that a driver refuses; launch() opts in where it must.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "core/context.h"
#include "core/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/shared.h"
#include "tests/emulator/functions.h"
#include "tests/emulator/runtime.h"

namespace zinc::emulator {
namespace launch_test {

using kernels::cuda::dynamic_shared;
using kernels::cuda::launch;
using testing::HasSubstr;

constexpr size_t kKiB = 1024;

// The last byte of its dynamic memory passes through, by way of 512 static bytes, as attention's
// forward kernel has them.
__global__ void passes_last_byte(int dynamic_bytes, int value, int* out) {
  ZINC_SHARED(int, cell, [128]);
  auto* bytes = dynamic_shared<unsigned char>();
  bytes[dynamic_bytes - 1] = static_cast<unsigned char>(value);
  cell[127] = bytes[dynamic_bytes - 1];
  *out = cell[127];
}
__global__ void does_nothing() {}

Device gpu(int16_t index) { return {.kind = DeviceKind::cuda, .index = index}; }

class EmulatedLaunch : public testing::Test {
 protected:
  EmulatedLaunch() { forget_opt_ins(); }
  ~EmulatedLaunch() override { set_num_devices(1); }
};

int pass(Context& context, size_t dynamic_bytes) {
  const ContextScope scope(context);
  int out = 0;
  launch(passes_last_byte, dim3(1), dim3(1), dynamic_bytes, context.compute(),
         static_cast<int>(dynamic_bytes), 42, &out);
  context.synchronize();
  return out;
}

template <class Error>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The dynamic bytes alone are within 48 KiB; together with the static ones they are not.
TEST_F(EmulatedLaunch, StaticAndDynamicBytesTogether_AreWhatADriverAllows) {
  const auto run = [](Launch shape) {
    return message_of<Fault>([&] {
      int out = 0;
      const int bytes = static_cast<int>(shape.dynamic_shared_bytes);
      run_grid(shape, [&] { passes_last_byte(bytes, 1, &out); });
    });
  };
  const auto plain = [](size_t bytes) {
    return Launch{.grid = 1, .block = 1, .dynamic_shared_bytes = bytes};
  };
  const auto opted_in = [](size_t bytes) {
    return Launch{.grid = 1,
                  .block = 1,
                  .dynamic_shared_bytes = bytes,
                  .max_dynamic_bytes = kMaxSharedBytes,
                  .opted_in = true};
  };
  EXPECT_EQ(run(plain(47 * kKiB)), "");
  EXPECT_THAT(
      run(plain(48 * kKiB)),
      HasSubstr("512 static and 49152 dynamic bytes of shared memory come to 50176, without "
                "opting in; a block has 49152"));
  // The compiler pads the static bytes to the alignment of the dynamic ones.
  EXPECT_THAT(run(plain(48 * kKiB - 512)), HasSubstr("without opting in"));
  EXPECT_EQ(run(opted_in(48 * kKiB)), "");
  EXPECT_EQ(run(opted_in(226 * kKiB)), "");
  EXPECT_THAT(run(opted_in(227 * kKiB)), HasSubstr("come to 233472; a block has 232448"));
}

TEST_F(EmulatedLaunch, KernelsOptInOnceForEachDevice) {
  set_num_devices(2);
  Context first({.device = gpu(0)});
  const int64_t before = num_opt_ins();
  EXPECT_EQ(pass(first, 48 * kKiB), 42);
  EXPECT_EQ(num_opt_ins() - before, 1);
  EXPECT_EQ(pass(first, 4 * kKiB), 42);
  EXPECT_EQ(pass(first, 226 * kKiB), 42);
  EXPECT_EQ(num_opt_ins() - before, 1);
  Context second({.device = gpu(1)});
  EXPECT_EQ(pass(second, 100 * kKiB), 42);
  EXPECT_EQ(num_opt_ins() - before, 2);
}

// A context that launches less than another one of its device takes nothing from it.
TEST_F(EmulatedLaunch, ContextsOfOneDevice_LeaveEachOtherTheirMemory) {
  Context large({.device = gpu(0)}), small({.device = gpu(0)});
  EXPECT_EQ(pass(large, 200 * kKiB), 42);
  EXPECT_EQ(pass(small, 2 * kKiB), 42);
  EXPECT_EQ(pass(large, 200 * kKiB), 42);
}

TEST_F(EmulatedLaunch, KernelsWithoutDynamicMemory_DoNotOptIn) {
  Context context({.device = gpu(0)});
  const ContextScope scope(context);
  const int64_t before = num_opt_ins();
  launch(does_nothing, dim3(1), dim3(1), 0, context.compute());
  context.synchronize();
  EXPECT_EQ(num_opt_ins(), before);
}

TEST_F(EmulatedLaunch, WhatADriverRefuses_IsAnErrorOfTheLaunch) {
  Context context({.device = gpu(0)});
  const ContextScope scope(context);
  const auto refused = [&](dim3 grid, dim3 block, size_t bytes = 0) {
    return message_of<CudaError>(
        [&] { launch(does_nothing, grid, block, bytes, context.compute()); });
  };
  EXPECT_EQ(refused(dim3(0x7fffffffu), dim3(0)).empty(), false);
  EXPECT_THAT(refused(dim3(1), dim3(1025)), HasSubstr("a block of 1025 x 1 x 1 threads"));
  EXPECT_THAT(refused(dim3(1), dim3(32, 33)), HasSubstr("a block of 32 x 33 x 1 threads"));
  EXPECT_THAT(refused(dim3(1), dim3(1, 1, 65)), HasSubstr("a block of 1 x 1 x 65 threads"));
  EXPECT_THAT(refused(dim3(0), dim3(1)), HasSubstr("an empty grid or block"));
  EXPECT_THAT(refused(dim3(0x80000000u), dim3(1)), HasSubstr("a grid of 2147483648 x 1 x 1"));
  EXPECT_THAT(refused(dim3(1, 65536), dim3(1)), HasSubstr("a grid of 1 x 65536 x 1 blocks"));
  EXPECT_THAT(refused(dim3(1, 1, 65536), dim3(1)), HasSubstr("a grid of 1 x 1 x 65536 blocks"));
  EXPECT_THAT(
      refused(dim3(2, 3), dim3(4), 227 * kKiB + 1),
      testing::AllOf(
          HasSubstr("kernel launch on a grid of 2 x 3 x 1 blocks of 4 x 1 x 1 threads with 0 "
                    "static and 232449 dynamic bytes"),
          HasSubstr("232449 dynamic bytes of shared memory, where the kernel has opted in to "
                    "232448")));
  context.synchronize();
}

TEST_F(EmulatedLaunch, MisalignedPacks_AreFaults) {
  alignas(16) bf16 values[24] = {};
  const auto fault = [&](auto access) {
    return message_of<Fault>([&] { run_grid(1, 1, 0, [&] { access(); }); });
  };
  using kernels::cuda::Pack;
  EXPECT_EQ(fault([&] { kernels::cuda::store_pack(values + 8, Pack<bf16>{}); }), "");
  EXPECT_THAT(fault([&] { kernels::cuda::store_pack(values + 4, Pack<bf16>{}); }),
              HasSubstr("16-byte store: the address is not aligned to 16 bytes"));
  // Half a pack needs half the alignment.
  EXPECT_EQ(fault([&] { kernels::cuda::store_pack(values + 4, Pack<bf16, 4>{}); }), "");
  EXPECT_THAT(fault([&] { kernels::cuda::store_pack(values + 2, Pack<bf16, 4>{}); }),
              HasSubstr("not aligned to 8 bytes"));
  const auto load = [&](int at, bool aligned) {
    return fault([&] { kernels::cuda::load_part<4>(values + at, 0, 8, aligned); });
  };
  EXPECT_EQ(load(4, true), "");
  EXPECT_THAT(load(1, true), HasSubstr("load of a pack: the address is not aligned to 8 bytes"));
  EXPECT_EQ(load(1, false), "");
}

TEST_F(EmulatedLaunch, Launches_AreListedWithTheLargestOfTheirSizes) {
  Context context({.device = gpu(0)});
  const ContextScope scope(context);
  launch(does_nothing, dim3(3), dim3(77), 0, context.compute());
  launch(does_nothing, dim3(1), dim3(5), 3333, context.compute());
  context.synchronize();
  const std::string path = testing::TempDir() + "zinc_launches.txt";
  ASSERT_TRUE(write_launches(path));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  EXPECT_THAT(text.str(), testing::ContainsRegex("(^|\n)[0-9a-f]+ 77 3333\n"));
}

}  // namespace launch_test
}  // namespace zinc::emulator
