// The backend nccl: what every backend is put to, and what is its own. On the emulator threads with
// an emulated GPU each meet in the emulated NCCL (tests/emulator/nccl.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/local/local.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/phantom/phantom.h"
#include "core/cuda_backend.h"
#include "core/transfer.h"
#include "tests/comm/checks.h"
#include "tests/comm/gpu_array.h"
#include "tests/comm/heartbeat_folder.h"
#include "tests/comm/on_gpu.h"
#include "tests/comm/rank_errors.h"
#include "tests/core/await.h"
#if defined(ZINC_CUDA_EMULATED)
#include "tests/emulator/nccl.h"
#include "tests/emulator/runtime.h"
#endif

namespace zinc::comm::testing {
namespace nccl_cuda_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The test also runs on a machine with several GPUs.
TEST(GpuNccl, MemoryOfTheDevice_IsGatheredAndSummedInOrder) {
#if defined(ZINC_CUDA_EMULATED)
  emulator::set_num_devices(3);
#endif
  const int world_size = std::min(4, static_cast<int>(cuda_devices().size()));
  if (world_size < 2 || !why_no_nccl().empty()) GTEST_SKIP() << "needs two GPUs and NCCL";
  constexpr int64_t kElements = 10'007;
  run_local_ranks(world_size, nccl_options(seconds(60)), [&](World& world) {
    EXPECT_EQ(world.communicator().backend(), "nccl");
    EXPECT_THAT(world.device_collectives(), ::testing::HasSubstr("NCCL 2."));
    Communicator& group = world.communicator();
    const StreamRef stream = world.context().stream(StreamRole::reduce);
    const int64_t n = kElements * world.size();
    const GpuArray in(world, values_of<bf16>(world.rank(), n, 2));
    const GpuArray shard(world, DType::bf16, kElements);
    const GpuArray whole(world, DType::bf16, n);
    const GpuArray room(
        world, DType::u8,
        group.workspace_bytes(Collective::reduce_scatter, n * size_of(DType::bf16), DType::bf16));
    group.reduce_scatter({.in = in.view(), .out = shard.view(), .workspace = room.view()}, stream);
    group.all_gather({shard.view(), whole.view()}, stream).wait();
    std::vector<bf16> expected;
    for (int64_t i = 0; i < n; ++i) expected.emplace_back(sum_of_ranks<bf16>(world.size(), i, 2));
    EXPECT_EQ(first_difference(whole.values<bf16>(), expected), -1);
  });
#if defined(ZINC_CUDA_EMULATED)
  emulator::set_num_devices(1);
#endif
}

#if defined(ZINC_CUDA_EMULATED)

using ::testing::AllOf;
using ::testing::HasSubstr;
using Order = ShuffledExecutor::Order;

// `num_devices` emulated GPUs, whose streams run in `order`, for as long as it lives.
class EmulatedGpus {
 public:
  explicit EmulatedGpus(int num_devices, Order order = Order::by_seed, uint64_t seed = 3) {
    emulator::set_num_devices(num_devices);
    emulator::set_default_schedule(seed, order);
  }
  ~EmulatedGpus() {
    emulator::set_num_devices(1);
    emulator::set_default_schedule(0);
  }
};

// A group of all ranks that takes the vectors of the checks.
std::unique_ptr<Communicator> group_of_all(World& world) {
  return std::make_unique<OnGpu>(world.communicator().split(0, world.rank()),
                                 world.context().device());
}

struct Schedule {
  const char* name;
  Order order;
};
constexpr Schedule kSchedules[] = {
    {"Earliest", Order::earliest}, {"Latest", Order::latest}, {"Random", Order::random}};
using Parameters = std::tuple<int, Schedule, Check>;

class GpuNcclBackend : public ::testing::TestWithParam<Parameters> {};

TEST_P(GpuNcclBackend, Passes) {
  const auto& [size, schedule, check] = GetParam();
  const EmulatedGpus gpus(size, schedule.order);
  const auto body = check.run;
  run_ranks(make_local_group(size), nccl_options(seconds(60)), [body](World& world) {
    const auto group = group_of_all(world);
    body({.group = *group, .context = world.context()});
    world.context().synchronize();
  });
}

std::string name_of_case(const ::testing::TestParamInfo<Parameters>& info) {
  const auto& [size, schedule, check] = info.param;
  return std::to_string(size) + "_" + schedule.name + "_" + check.name;
}

// Every check under every schedule; large arrays once.
std::vector<Parameters> parameters() {
  std::vector<Parameters> all;
  for (const int size : {1, 2, 3, 5}) {
    for (const Schedule& schedule : kSchedules) {
      if (size == 1 && schedule.order != Order::random) continue;
      for (const Check& check : kChecks) {
        const bool once = size == 2 && schedule.order == Order::random;
        if (check.run == Collectives_LargeArrays_AreRight && !once) continue;
        all.emplace_back(size, schedule, check);
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, GpuNcclBackend, ::testing::ValuesIn(parameters()), name_of_case);

// The sums of a reduce_scatter by `algorithm`, of every rank.
std::vector<float> sums_by(ReduceAlgorithm algorithm) {
  constexpr int kWorld = 3;
  constexpr int64_t kElements = 1000;
  const EmulatedGpus gpus(kWorld);
  std::vector<float> sums(kWorld * kElements);
  run_ranks(make_local_group(kWorld), nccl_options(seconds(60)), [&](World& world) {
    const auto group = group_of_all(world);
    group->set_reduce_algorithm(algorithm);
    auto in = values_of<float>(world.rank(), kWorld * kElements, 2);
    std::vector<uint8_t> room(static_cast<size_t>(
        group->workspace_bytes(Collective::reduce_scatter, view_of(in).bytes(), DType::f32)));
    group
        ->reduce_scatter({.in = view_of(in),
                          .out = view_of(sums, world.rank() * kElements, kElements),
                          .workspace = view_of(room)},
                         world.context().stream(StreamRole::reduce))
        .wait();
  });
  return sums;
}

TEST(GpuNccl, NativeSums_AreOfTheLibrarysOwnOrder) {
  const auto ordered = sums_by(ReduceAlgorithm::ordered);
  const auto native = sums_by(ReduceAlgorithm::native);
  EXPECT_NE(first_difference(ordered, native), -1);
  for (size_t i = 0; i < ordered.size(); ++i) {
    // Three values below 2^11 and two roundings, each off by half a unit in the last place of 2^12.
    EXPECT_NEAR(ordered[i], native[i], 4 * 0x1p-12) << i;
  }
}

std::map<int, std::string> errors_of(int size, milliseconds deadline,
                                     const std::function<void(const Rank&)>& body) {
  const EmulatedGpus gpus(size);
  return errors_of_ranks(make_local_group(size), nccl_options(deadline), [&](World& world) {
    const auto group = group_of_all(world);
    body({.group = *group, .context = world.context()});
  });
}

// Groups and barriers too: cudaMalloc has given what the allocators took, and a plan counts it.
TEST(GpuNccl, AllMemoryIsTheAllocators_AsThePhantomHasIt) {
  constexpr int kWorld = 3;
  const EmulatedGpus gpus(kWorld);
  const int64_t before = emulator::device_memory_bytes();
  std::vector<MemoryReport> real(kWorld);
  std::barrier threads(kWorld);
  run_ranks(make_local_group(kWorld), nccl_options(seconds(60)), [&](World& world) {
    const Block kept = world.context().allocate(1000, Label::parameters);
    const auto group = world.communicator().split(world.rank() / 2, 0);
    for (Communicator* one : {&world.communicator(), group.get()}) {
      one->barrier(world.context().stream(StreamRole::gather)).wait();
      one->barrier(world.context().stream(StreamRole::reduce)).wait();
    }
    world.context().synchronize();
    real[static_cast<size_t>(world.rank())] = world.context().allocator().report();
    threads.arrive_and_wait();
    int64_t reserved = 0;
    for (const MemoryReport& report : real) {
      reserved += report.reserved[static_cast<size_t>(Tier::device)].live;
    }
    EXPECT_EQ(emulator::device_memory_bytes() - before, reserved);
    threads.arrive_and_wait();
  });
  Context context({.device = {.kind = DeviceKind::cuda, .index = 0, .meta = true}});
  const ContextScope scope(context);
  const auto phantom =
      make_phantom({.size = kWorld, .imitates = "nccl", .device = context.device()});
  const Block kept = context.allocate(1000, Label::parameters);
  for (const StreamRole role : {StreamRole::gather, StreamRole::reduce}) {
    phantom->barrier(context.stream(role));
  }
  const MemoryReport planned = context.allocator().report();
  EXPECT_EQ(planned.at(Tier::device, Label::communication).peak, kBlockAlignment);
  for (const MemoryReport& report : real) {
    EXPECT_EQ(report.at(Tier::device).peak, planned.at(Tier::device).peak);
    EXPECT_EQ(report.at(Tier::device).live, planned.at(Tier::device).live);
    EXPECT_EQ(report.reserved[0].peak, planned.reserved[0].peak);
  }
}

TEST(GpuNcclFaults, Deadline_RankThatDoesNotCome_IsNamedByAll) {
  std::atomic<bool> others_know = false;
  const auto errors = errors_of(3, seconds(60), [&](const Rank& rank) {
    all_gather(rank, 10);
    rank.group.set_deadline(milliseconds(1500));
    if (rank.rank() == 1) await([&] { return others_know.load(); });
    try {
      all_gather(rank, 10);
    } catch (const CommError&) {
      others_know = true;
      throw;
    }
  });
  ASSERT_EQ(errors.size(), 3u);
  for (const auto& [rank, text] : errors) {
    EXPECT_THAT(text, AllOf(HasSubstr("all_gather #2 (10 x f32): no progress for 1500 ms: waiting "
                                      "for rank 1")))
        << rank;
  }
}

TEST(GpuNcclFaults, Deadline_RankThatNeverStarts_EndsTheStart) {
  emulator::set_nccl_absent_rank(1);
  const EmulatedGpus gpus(2);
  std::string text;
  try {
    run_ranks(make_local_group(2), nccl_options(milliseconds(500)), [](World&) {});
  } catch (const CommError& error) {
    text = error.what();
  }
  emulator::set_nccl_absent_rank(-1);
  EXPECT_THAT(text, HasSubstr("NCCL's start: no progress for 500 ms: waiting for rank"));
}

// A rank is killed while the folder of the heartbeats hangs, and NCCL says so. Returns how long the
// last of the others took to end.
std::chrono::nanoseconds time_after_a_death() {
  constexpr int kWorld = 3;
  const EmulatedGpus gpus(kWorld);
  HeartbeatFolder folder;
  std::vector<std::shared_ptr<Heartbeat>> heartbeats;
  for (int rank = 0; rank < kWorld; ++rank) {
    heartbeats.push_back(std::make_shared<Heartbeat>(folder.path(), rank, kWorld));
  }
  std::atomic<int> others_know = 0;
  std::atomic<std::chrono::steady_clock::time_point> died{};
  const auto errors = errors_of_ranks(
      make_local_group(kWorld, 0, heartbeats), nccl_options(seconds(60)), [&](World& world) {
        const auto group = group_of_all(world);
        const Rank rank{.group = *group, .context = world.context()};
        all_gather(rank, 10);
        if (rank.rank() == 1) {
          folder.hang_at(1);
          std::this_thread::sleep_for(milliseconds(50));  // time for the others to wait
          died = std::chrono::steady_clock::now();
          emulator::fail_nccl("the process of rank 1 has gone");
          return await([&] { return others_know == kWorld - 1; });
        }
        try {
          all_gather(rank, 10);
        } catch (...) {
          ++others_know;
          throw;
        }
        ++others_know;
      });
  const auto took = std::chrono::steady_clock::now() - died.load();
  EXPECT_EQ(errors.size(), 2u);
  for (const auto& [rank, text] : errors) {
    EXPECT_THAT(text, AllOf(HasSubstr("the process of rank 1 has gone"),
                            HasSubstr("as their folder does not answer")));
  }
  return took;
}

// The ranks' deadline is a minute.
TEST(GpuNcclFaults, ARankThatDies_EndsTheOthersBeforeTheirDeadline_WhateverTheHeartbeats) {
  EXPECT_LT(time_after_a_death(), seconds(30));
}

// The processes and their launcher need the larger part of the 3 s that such a job has to end.
TEST(GpuNcclPace, ARankThatDies_EndsTheOthersInTime_WhateverTheHeartbeats) {
  EXPECT_LT(time_after_a_death(), milliseconds(1500));
}

TEST(GpuNcclFaults, Abort_WhileOthersWait_WakesAll) {
  const auto errors = errors_of(3, seconds(60), [](const Rank& rank) {
    if (rank.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(30));
      rank.group.abort("the operator said so");
    }
    all_gather(rank, 1000);
  });
  ASSERT_EQ(errors.size(), 3u);
  for (const auto& [rank, text] : errors) {
    EXPECT_THAT(text, HasSubstr("rank 2: the operator said so")) << rank;
  }
}

TEST(GpuNcclFaults, OtherSizes_AreNamedAndReachAll) {
  const auto errors =
      errors_of(2, seconds(60), [](const Rank& rank) { all_gather(rank, 10 + rank.rank()); });
  ASSERT_EQ(errors.size(), 2u);
  for (const auto& [rank, text] : errors) EXPECT_THAT(text, HasSubstr("all-gather of 4")) << rank;
}

TEST(GpuNcclFaults, AfterAFailure_EveryCallThrows) {
  const auto errors = errors_of(2, seconds(60), [](const Rank& rank) {
    rank.group.abort("enough");
    EXPECT_THROW(rank.group.barrier(rank.gather()), CommError);
    EXPECT_THROW(rank.group.split(0, 0), CommError);
    all_gather(rank, 1);
  });
  EXPECT_EQ(errors.size(), 2u);
}

// A rank issues three collectives before its peer issues any: the host does not wait for it.
TEST(GpuNccl, Issue_DoesNotWaitForThePeer) {
  const EmulatedGpus gpus(2, Order::latest);
  std::atomic<bool> issued = false;
  run_ranks(make_local_group(2), nccl_options(seconds(20)), [&](World& world) {
    const auto group = group_of_all(world);
    const StreamRef stream = world.context().stream(StreamRole::gather);
    while (world.rank() == 1 && !issued) std::this_thread::yield();
    std::vector<float> x(100, 1.0f);
    for (int k = 0; k < 3; ++k) group->broadcast({view_of(x), 0}, stream);
    issued = true;
    stream->synchronize();
  });
}

// A launch is as an issue of its collectives at that time: they move what is there then, in one
// order with those outside, on whichever streams, and are counted.
TEST(GpuNccl, RecordedCollectives_AreThoseOfEachLaunch) {
  constexpr int64_t kElements = 100;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const EmulatedGpus gpus(2, Order::by_seed, seed);
    run_ranks(make_local_group(2), nccl_options(seconds(60)), [&](World& world) {
      Communicator& group = world.communicator();
      const StreamRef compute = world.context().compute();
      const StreamRef gather = world.context().stream(StreamRole::gather);
      const StreamRef reduce = world.context().stream(StreamRole::reduce);
      const GpuArray shard(world, DType::f32, kElements), whole(world, DType::f32, 2 * kElements);
      const GpuArray again(world, DType::f32, 2 * kElements);
      const GpuArray outside(world, DType::f32, kElements);
      const GpuArray outside_whole(world, DType::f32, 2 * kElements);
      // The first launch comes behind this one, which is not recorded.
      group.all_gather({outside.view(), outside_whole.view()}, reduce);
      const int64_t before = group.bytes_sent();
      const auto graph = group.record(compute, [&] {
        gather->wait(compute->record());
        group.all_gather({shard.view(), whole.view()}, gather);
        group.all_gather({shard.view(), again.view()}, compute);
      });
      EXPECT_EQ(group.bytes_sent(), before);
      for (int launch = 1; launch <= 4; ++launch) {
        const auto values = values_of<float>(world.rank(), kElements, launch);
        upload(values.data(), shard.view(), compute);
        if (launch > 1) group.all_gather({outside.view(), outside_whole.view()}, reduce);
        graph->launch(compute);
        std::vector<float> expected;
        for (int r = 0; r < 2; ++r) {
          for (const float value : values_of<float>(r, kElements, launch)) {
            expected.push_back(value);
          }
        }
        EXPECT_EQ(whole.values<float>(), expected) << "seed " << seed << ", launch " << launch;
        EXPECT_EQ(again.values<float>(), expected) << "seed " << seed << ", launch " << launch;
        upload(values.data(), outside.view(), reduce);
        group.all_gather({outside.view(), outside_whole.view()}, reduce).wait_on(compute);
        EXPECT_EQ(outside_whole.values<float>(), expected) << "seed " << seed;
        EXPECT_EQ(group.bytes_sent() - before, (4 * launch - 1) * kElements * 4);
      }
      world.context().synchronize();
    });
  }
}

TEST(GpuNcclFaults, LaunchOfRecordedCollectives_HasADeadline) {
  const EmulatedGpus gpus(2);
  std::atomic<bool> other_knows = false;
  std::map<int, std::string> errors;
  std::mutex mutex;
  run_ranks(make_local_group(2), nccl_options(seconds(60)), [&](World& world) {
    Communicator& group = world.communicator();
    const StreamRef compute = world.context().compute();
    const GpuArray shard(world, DType::f32, 10), whole(world, DType::f32, 20);
    const auto graph = group.record(compute, [&] {
      group.all_gather({shard.view(), whole.view()}, compute);
    });
    try {
      graph->launch(compute);
      compute->synchronize();
      group.set_deadline(milliseconds(400));
      if (world.rank() == 1) await([&] { return other_knows.load(); });
      graph->launch(compute);
      compute->synchronize();
    } catch (const CommError& error) {
      other_knows = true;
      const std::lock_guard lock(mutex);
      errors[world.rank()] = error.what();
    } catch (...) {
      other_knows = true;
      throw;
    }
  });
  ASSERT_EQ(errors.size(), 2u);
  for (const auto& [rank, text] : errors) {
    EXPECT_THAT(text, HasSubstr("a launch of 1 recorded collectives: no progress for 400 ms: "
                                "waiting for rank 1"))
        << rank;
  }
}

TEST(GpuNccl, RanksOfOneGpu_AreRefusedByNameBeforeTheStart) {
  const EmulatedGpus gpus(1);
  std::string text;
  try {
    run_ranks(make_local_group(2), nccl_options(seconds(20)), [](World&) {});
  } catch (const CommError& error) {
    text = error.what();
  }
  EXPECT_THAT(text, AllOf(HasSubstr("ranks 0 and 1 share the GPU 0000:01:00.0 of "),
                          HasSubstr("start one rank per GPU"), HasSubstr("--comm mpi")));
}

TEST(GpuNccl, Automatic_IsNcclWhereEveryRankHasAGpu_ElseStagedWithTheReason) {
  for (const int num_gpus : {2, 1}) {
    const EmulatedGpus gpus(num_gpus);
    ConnectOptions options = nccl_options(seconds(20));
    options.device_collectives = DeviceCollectives::automatic;
    run_ranks(make_local_group(2), options, [&](World& world) {
      EXPECT_EQ(world.communicator().backend(), num_gpus == 2 ? "nccl" : "local");
      EXPECT_THAT(world.device_collectives(),
                  HasSubstr(num_gpus == 2 ? "NCCL 2.28.9"
                                          : "staged through host memory: ranks 0 and 1 share"));
    });
  }
}

#endif

}  // namespace nccl_cuda_test
}  // namespace zinc::comm::testing
