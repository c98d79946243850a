// NCCL with one rank: its start, every collective, a graph and an abort, on one GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "comm/nccl/nccl_communicator.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/transfer.h"
#include "tests/comm/gpu_array.h"
#include "tests/comm/rank_data.h"
#if defined(ZINC_CUDA_EMULATED)
#include "tests/emulator/nccl.h"
#endif

namespace zinc::comm::testing {
namespace nccl_one_rank_cuda_test {

constexpr int64_t kFew = 1000;

void run_alone(const std::function<void(World&)>& body) {
  run_local_ranks(1, nccl_options(std::chrono::seconds(60)), body);
}
bool has_nccl() { return !cuda_devices().empty() && why_no_nccl().empty(); }

// The library's functions that `body` called, where the library counts them.
std::map<std::string, int64_t> calls_of(const std::function<void()>& body) {
#if defined(ZINC_CUDA_EMULATED)
  std::map<std::string, int64_t> before = emulator::nccl_calls();
  body();
  std::map<std::string, int64_t> calls = emulator::nccl_calls();
  for (const auto& [name, count] : before) calls[name] -= count;
  std::erase_if(calls, [](const auto& call) { return call.second == 0; });
  return calls;
#else
  body();
  return {};
#endif
}

void sum_alone(World& world, ReduceAlgorithm algorithm) {
  Communicator& group = world.communicator();
  group.set_reduce_algorithm(algorithm);
  const StreamRef stream = world.context().stream(StreamRole::reduce);
  const auto values = values_of<float>(0, kFew, 3);
  const GpuArray in(world, values), out(world, DType::f32, kFew), inout(world, values);
  group.reduce_scatter({.in = in.view(), .out = out.view()}, stream).wait();
  EXPECT_EQ(out.values<float>(), values);
  group.all_reduce({.inout = inout.view()}, stream).wait();
  EXPECT_EQ(inout.values<float>(), values);
  // Into a sum of another dtype, for which the native algorithm has no memory.
  const GpuArray small(world, std::vector<bf16>(static_cast<size_t>(kFew), bf16(0.5f)));
  group.reduce_scatter({.in = small.view(), .out = out.view(), .accumulate = true}, stream).wait();
  const auto sums = out.values<float>();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(sums[i], values[i] + 0.5f) << i;
}

TEST(GpuNcclOneRank, EveryCollective_GoesThroughTheLibrary) {
  if (!has_nccl()) GTEST_SKIP() << "needs a GPU and NCCL";
  const auto calls = calls_of([] {
    run_alone([](World& world) {
      EXPECT_EQ(world.communicator().backend(), "nccl");
      EXPECT_THAT(world.device_collectives(), ::testing::HasSubstr("NCCL 2."));
      Communicator& group = world.communicator();
      const StreamRef stream = world.context().stream(StreamRole::gather);
      const auto values = values_of<float>(0, kFew, 1);
      const GpuArray in(world, values), out(world, DType::f32, kFew);
      group.all_gather({in.view(), out.view()}, stream).wait();
      EXPECT_EQ(out.values<float>(), values);
      const GpuArray exchanged(world, DType::f32, kFew);
      group.all_to_all({in.view(), exchanged.view()}, stream).wait();
      EXPECT_EQ(exchanged.values<float>(), values);
      const AllToAllCounts counts{.sent = {kFew}, .received = {kFew}, .largest = kFew};
      const GpuArray counted(world, DType::f32, kFew);
      group.all_to_all({in.view(), counted.view(), &counts}, stream).wait();
      EXPECT_EQ(counted.values<float>(), values);
      const GpuArray shifted(world, DType::f32, kFew);
      group.shift({in.view(), shifted.view()}, stream).wait();
      EXPECT_EQ(shifted.values<float>(), values);
      group.broadcast({in.view(), 0}, stream).wait();
      EXPECT_EQ(in.values<float>(), values);
      group.barrier(stream).wait();
      sum_alone(world, ReduceAlgorithm::ordered);
      sum_alone(world, ReduceAlgorithm::native);
      EXPECT_EQ(group.bytes_sent(), 0);
      EXPECT_EQ(group.bytes_received(), 0);
      const auto half = group.split(0, 0);
      half->barrier(stream).wait();
    });
  });
#if defined(ZINC_CUDA_EMULATED)
  const std::map<std::string, int64_t> least{{"init", 2},       {"all_gather", 1},
                                             {"all_reduce", 1}, {"reduce_scatter", 1},
                                             {"send", 1},       {"receive", 1}};
  for (const auto& [name, count] : least)
    EXPECT_GE(calls.contains(name) ? calls.at(name) : 0, count) << name;
#endif
}

TEST(GpuNcclOneRank, RecordedCollectives_AreThoseOfEachLaunch) {
  if (!has_nccl()) GTEST_SKIP() << "needs a GPU and NCCL";
  run_alone([](World& world) {
    Communicator& group = world.communicator();
    const StreamRef compute = world.context().compute();
    const StreamRef gather = world.context().stream(StreamRole::gather);
    const GpuArray in(world, DType::f32, kFew), out(world, DType::f32, kFew);
    const GpuArray sum(world, DType::f32, kFew);
    group.set_reduce_algorithm(ReduceAlgorithm::native);
    group.all_gather({in.view(), out.view()}, compute);
    const auto graph = group.record(compute, [&] {
      gather->wait(compute->record());
      group.all_gather({in.view(), out.view()}, gather).wait_on(compute);
      group.reduce_scatter({.in = out.view(), .out = sum.view()}, compute);
    });
    for (int launch = 1; launch <= 3; ++launch) {
      const auto values = values_of<float>(0, kFew, launch);
      upload(values.data(), in.view(), compute);
      graph->launch(compute);
      EXPECT_EQ(sum.values<float>(), values) << launch;
    }
    world.context().synchronize();
  });
}

TEST(GpuNcclOneRank, AfterAnAbort_EveryCallThrows_AndTheEndIsQuiet) {
  if (!has_nccl()) GTEST_SKIP() << "needs a GPU and NCCL";
  std::string text;
  const auto calls = calls_of([&] {
    try {
      run_alone([](World& world) {
        Communicator& group = world.communicator();
        const StreamRef stream = world.context().stream(StreamRole::gather);
        const GpuArray in(world, DType::f32, kFew), out(world, DType::f32, kFew);
        group.all_gather({in.view(), out.view()}, stream).wait();
        group.abort("enough");
        EXPECT_THROW(group.barrier(stream), CommError);
        group.all_gather({in.view(), out.view()}, stream);
      });
    } catch (const CommError& error) {
      text = error.what();
    }
  });
  EXPECT_THAT(text, ::testing::HasSubstr("enough"));
#if defined(ZINC_CUDA_EMULATED)
  EXPECT_EQ(calls.contains("abort") ? calls.at("abort") : 0, 1);

#endif
}

#if defined(ZINC_CUDA_EMULATED)
TEST(GpuNcclOneRank, Automatic_LeavesARankAloneWithoutIt) {
  ConnectOptions options = nccl_options(std::chrono::seconds(60));
  options.device_collectives = DeviceCollectives::automatic;
  const auto calls = calls_of([&] {
    run_local_ranks(1, options, [](World& world) {
      EXPECT_NE(world.communicator().backend(), "nccl");
      EXPECT_EQ(world.device_collectives(), "");
    });
  });
  EXPECT_FALSE(calls.contains("init"));
}
#endif

}  // namespace nccl_one_rank_cuda_test
}  // namespace zinc::comm::testing
