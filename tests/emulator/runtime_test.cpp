// core/cuda on the emulated runtime: what a GPU would do, and that mistakes show.
#include "tests/emulator/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "core/context.h"
#include "core/cuda_backend.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/kept_memory.h"
#include "core/parallel.h"
#include "core/trace.h"
#include "core/transfer.h"
#include "tests/emulator/include/cuda_runtime_api.h"

namespace zinc {
namespace runtime_test {

using testing::HasSubstr;

constexpr Device kGpu{.kind = DeviceKind::cuda};
constexpr int kSeeds = 20;

cudaStream_t native(StreamRef stream) { return static_cast<cudaStream_t>(stream->native()); }

class EmulatedRuntime : public testing::Test {
 protected:
  ~EmulatedRuntime() override {
    emulator::set_num_devices(1);
    emulator::set_compute_capability(9);
    emulator::set_device_memory_bytes(int64_t{4} << 30);
  }
};

TEST_F(EmulatedRuntime, Device_IsFoundAndDescribed) {
  const std::vector<CudaDeviceInfo> devices = cuda_devices();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "emulated GPU");
  EXPECT_TRUE(devices[0].has_bf16());
  EXPECT_EQ(why_no_cuda_device(), "");
}

TEST_F(EmulatedRuntime, NoSuchDevice_IsNamedWithTheCure) {
  const auto message = [](Device device) -> std::string {
    try {
      use_cuda_device(device);
    } catch (const CudaError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({.kind = DeviceKind::cuda, .index = 1}), HasSubstr("the last one is cuda:0"));
  emulator::set_num_devices(0);
  EXPECT_TRUE(cuda_devices().empty());
  EXPECT_THAT(message(kGpu), HasSubstr("no NVIDIA GPU is visible"));
}

TEST_F(EmulatedRuntime, DeviceThatCannotDoTheWork_IsRefusedWithTheReason) {
  const auto message = [](Device device, DType dtype, bool fp8 = false) -> std::string {
    try {
      require_device(device, dtype, fp8);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(kGpu, DType::bf16), "");
  EXPECT_EQ(message(kCpu, DType::f64), "");
  EXPECT_THAT(message(kGpu, DType::f64), HasSubstr("on the CPU alone"));
  EXPECT_THAT(message({.kind = DeviceKind::cuda, .index = 1}, DType::f32),
              HasSubstr("has 1 GPU(s); the last one is cuda:0"));
  emulator::set_compute_capability(7);
  EXPECT_THAT(message(kGpu, DType::bf16), HasSubstr("does not compute in bf16"));
  EXPECT_EQ(message(kGpu, DType::f16), "");
  emulator::set_compute_capability(8);
  EXPECT_EQ(message(kGpu, DType::bf16), "");
  EXPECT_THAT(message(kGpu, DType::bf16, true), HasSubstr("does not multiply 8 bits"));
  emulator::set_num_devices(0);
  EXPECT_THAT(message(kGpu, DType::f32), HasSubstr("no NVIDIA GPU is visible"));
}

// A value travels host -> device on one stream and back on another.
int round_trip(uint64_t seed, bool with_wait) {
  emulator::set_runtime_seed(seed);
  Context context({.device = kGpu});
  const ContextScope scope(context);
  const StreamRef in = context.stream(StreamRole::copy_in);
  const StreamRef out = context.stream(StreamRole::copy_out);
  const Block device = context.allocator().allocate(4, Tier::device, Label::staging, in);
  const Block host = context.allocator().allocate(4, Tier::pinned_host, Label::staging, in);
  const Block back = context.allocator().allocate(4, Tier::pinned_host, Label::staging, out);
  const int value = 42;
  std::memcpy(host.data(), &value, 4);
  cuda_copy(device.data(), host.data(), 4, in);
  if (with_wait) out->wait(in->record());
  cuda_copy(back.data(), device.data(), 4, out);
  out->synchronize();
  int result = 0;
  std::memcpy(&result, back.data(), 4);
  return result;
}

TEST_F(EmulatedRuntime, EventWait_OrdersStreamsUnderEverySeed) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) EXPECT_EQ(round_trip(seed, true), 42) << seed;
}

TEST_F(EmulatedRuntime, MissingEventWait_ShowsWithinTwentySeeds) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) wrong += round_trip(seed, false) != 42;
  EXPECT_GT(wrong, 0);
}

TEST_F(EmulatedRuntime, HostWaitForAnEvent_SeesWhatCameBefore) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    emulator::set_runtime_seed(seed);
    Context context({.device = kGpu});
    const ContextScope scope(context);
    const StreamRef stream = context.stream(StreamRole::copy_out);
    const Block from = context.allocator().allocate(4, Tier::pinned_host, Label::staging, stream);
    const Block to = context.allocator().allocate(4, Tier::pinned_host, Label::staging, stream);
    const int value = 42, before = 0;
    std::memcpy(from.data(), &value, 4);
    std::memcpy(to.data(), &before, 4);
    cuda_copy(to.data(), from.data(), 4, stream);
    stream->record().wait();
    EXPECT_EQ(std::memcmp(to.data(), &value, 4), 0) << seed;
    stream->synchronize();
  }
}

TEST_F(EmulatedRuntime, EventsWithoutWorkBetweenThem_AreOne) {
  const auto streams = make_cuda_streams(kGpu);
  const auto a = streams->make_stream("a", 1, nullptr);
  const auto b = streams->make_stream("b", 2, nullptr);
  const auto is_new_after = [&](const std::function<void()>& work) {
    const Event before = a->record();
    EXPECT_EQ(a->record().state(), before.state());
    work();
    return a->record().state() != before.state();
  };
  EXPECT_FALSE(is_new_after([] {}));
  EXPECT_TRUE(is_new_after([&] { a->enqueue("work", [] {}); }));
  EXPECT_TRUE(is_new_after([&] { native(*a); }));
  EXPECT_TRUE(is_new_after([&] { a->wait(b->record()); }));
}

TEST_F(EmulatedRuntime, WaitForAnEvent_IsNotMovedByALaterRecord) {
  int not_yet = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    emulator::set_runtime_seed(seed);
    const auto streams = make_cuda_streams(kGpu);
    const auto a = streams->make_stream("a", 1, nullptr);
    const auto b = streams->make_stream("b", 2, nullptr);
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, native(*a));
    cudaStreamWaitEvent(native(*b), event, 0);
    bool ran = false;
    a->enqueue("late", [&] { ran = true; });
    cudaEventRecord(event, native(*a));
    b->synchronize();  // under every seed `late` would have run if the wait had moved
    not_yet += ran ? 0 : 1;
    a->synchronize();
    cudaEventDestroy(event);
    EXPECT_TRUE(ran);
  }
  EXPECT_GT(not_yet, 0);
}

TEST_F(EmulatedRuntime, PageableCopies_TakeTheBytesAtTheCallAndBringThemBeforeTheReturn) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    emulator::set_runtime_seed(seed);
    Context context({.device = kGpu});
    const Block device = context.allocate(4, Label::staging);
    int value = 7;
    cuda_copy(device.data(), &value, 4, context.compute());
    value = 8;
    int back = 0;
    cuda_copy(&back, device.data(), 4, context.compute());
    EXPECT_EQ(back, 7);
  }
}

TEST_F(EmulatedRuntime, PinnedSource_IsReadWhenTheCopyRuns) {
  int changed = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    emulator::set_runtime_seed(seed);
    Context context({.device = kGpu});
    const Block host = context.allocate(4, Label::staging, Tier::pinned_host);
    const Block device = context.allocate(4, Label::staging);
    int value = 7;
    std::memcpy(host.data(), &value, 4);
    cuda_copy(device.data(), host.data(), 4, context.compute());
    value = 8;
    std::memcpy(host.data(), &value, 4);  // too early: nothing waited for the copy
    int back = 0;
    cuda_copy(&back, device.data(), 4, context.compute());
    changed += back == 8;
  }
  EXPECT_GT(changed, 0);
}

TEST_F(EmulatedRuntime, FreshDeviceMemory_IsPoisoned) {
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 16), cudaSuccess);
  float value = 0;
  std::memcpy(&value, data, 4);
  EXPECT_TRUE(std::isnan(value));
  const int64_t before = emulator::num_device_synchronizations();
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(emulator::num_device_synchronizations(), before + 1);
}

TEST_F(EmulatedRuntime, ExhaustedDevice_IsOutOfMemoryWithTheTable) {
  emulator::set_device_memory_bytes(int64_t{64} << 20);
  Context context({.device = kGpu});
  try {
    const Block block = context.allocate(int64_t{65} << 20, Label::parameters);
    FAIL() << "allocated";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("parameters"));
  }
  EXPECT_NO_THROW(context.allocate(1024, Label::parameters));
}

TEST_F(EmulatedRuntime, RepeatedSteps_DoNotStopTheDevice) {
  Context context({.device = kGpu});
  const auto step = [&] {
    const Block a = context.allocate(3 << 20, Label::activations);
    const Block b = context.allocate(1 << 10, Label::activations, Tier::pinned_host);
    cuda_copy(a.data(), b.data(), 1 << 10, context.compute());
  };
  step();
  const int64_t before = emulator::num_device_synchronizations();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(emulator::num_device_synchronizations(), before);
}

TEST_F(EmulatedRuntime, Poison_ReachesBothTiers) {
  Context context({.device = kGpu, .memory = {.poison = true}});
  for (const Tier tier : {Tier::device, Tier::pinned_host}) {
    const Block block = context.allocate(8, Label::staging, tier);
    context.synchronize();
    EXPECT_EQ(*static_cast<uint64_t*>(block.data()), ~uint64_t{0});
  }
}

TEST_F(EmulatedRuntime, Transfer_CopiesBetweenTiers) {
  Context context({.device = kGpu});
  const Block host = context.allocate(16, Label::staging, Tier::pinned_host);
  const Block device = context.allocate(16, Label::staging);
  const View x(host.data(), DType::f32, Shape{4}, kGpu, Tier::pinned_host);
  const View y(device.data(), DType::f32, Shape{4}, kGpu, Tier::device);
  x.data_as<float>()[3] = 1.5f;
  transfer(x, y, context.compute());
  float back[4] = {};
  cuda_copy(back, device.data(), 16, context.compute());
  EXPECT_EQ(back[3], 1.5f);
}

// CUDA would copy in the calling thread; a task of the stream stands in the trace.
TEST_F(EmulatedRuntime, TransferInTheHost_IsATaskOfTheStream) {
  TraceRecorder trace;
  Context context({.device = kGpu, .trace = &trace});
  const Block block = context.allocate(8, Label::staging, Tier::pinned_host);
  const View both(block.data(), DType::f32, Shape{2}, kGpu, Tier::pinned_host);
  context.compute()->synchronize();
  both.data_as<float>()[0] = 1.5f;
  const StreamRef stream = context.stream(StreamRole::copy_out);
  transfer(both.narrow(0, 0, 1), both.narrow(0, 1, 1), stream);
  stream->synchronize();
  EXPECT_EQ(both.data_as<float>()[1], 1.5f);
  ASSERT_EQ(trace.events().size(), 1u);
  EXPECT_EQ(trace.events()[0].name, "transfer");
}

TEST_F(EmulatedRuntime, FailedHostTask_FailsEveryStreamOfTheDevice) {
  const auto streams = make_cuda_streams(kGpu);
  const auto a = streams->make_stream("a", 1, nullptr);
  const auto b = make_stream_beside(*a, "b", 2, nullptr, 1);
  a->enqueue("fails", [] { throw DataError("a torn page"); });
  EXPECT_THROW(a->synchronize(), DataError);
  bool ran = false;
  b->enqueue("later", [&] { ran = true; });
  EXPECT_THROW(b->synchronize(), DataError);
  EXPECT_FALSE(ran);
}

// CUDA may run each host task in another thread, which has the default number of threads.
TEST_F(EmulatedRuntime, HostTasks_BringTheirNumberOfThreads) {
  const int before = num_parallel_threads();
  const auto streams = make_cuda_streams(kGpu);
  const auto a = streams->make_stream("a", 1, nullptr);
  const auto b = make_stream_beside(*a, "b", 2, nullptr, 3);
  for (const int of_thread : {1, 2}) {
    set_num_parallel_threads(of_thread);
    int threads = 0, elsewhere = 0;
    b->enqueue("computes", [&] { threads = num_parallel_threads(); });
    b->synchronize();
    a->enqueue("does not", [&] { elsewhere = num_parallel_threads(); });
    a->synchronize();
    EXPECT_EQ(threads, 3);
    EXPECT_EQ(elsewhere, of_thread);
    EXPECT_EQ(num_parallel_threads(), of_thread);
  }
  set_num_parallel_threads(before);
}

// A captured stream does nothing; every launch does what it was told, in the stream's order.
TEST_F(EmulatedRuntime, Graph_RepeatsWhatWasRecorded) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    emulator::set_runtime_seed(seed);
    Context context({.device = kGpu});
    const ContextScope scope(context);
    const StreamRef stream = context.compute();
    const Block pinned = context.allocate(4, Label::workspace, Tier::pinned_host);
    const Block device = context.allocate(8, Label::workspace);
    auto* const value = static_cast<int32_t*>(pinned.data());
    auto* const target = static_cast<int32_t*>(device.data());
    *value = 1;
    const std::unique_ptr<CudaGraph> graph = record_cuda_graph(stream, [&] {
      cuda_copy(target, value, 4, stream);
      cuda_copy(target + 1, target, 4, stream);
    });
    stream->synchronize();
    EXPECT_NE(target[1], 1) << "it ran while it was recorded";
    for (const int32_t next : {2, 3}) {
      *value = next;
      graph->launch(stream);
      stream->synchronize();
      EXPECT_EQ(target[1], next);
    }
  }
}

// Work that a recording forks to another stream and joins again is part of the recording. It runs
// behind the stream's earlier work outside of the recording, and ahead of its later work; also if
// no stream waits for the fork.
TEST_F(EmulatedRuntime, Graph_ForksToOtherStreamsAndJoins) {
  const auto wrong = [](bool takes_back) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      emulator::set_runtime_seed(seed);
      Context context({.device = kGpu});
      const ContextScope scope(context);
      const StreamRef stream = context.compute();
      const StreamRef other = context.stream(StreamRole::copy_in);
      const Block pinned = context.allocate(3 * 4, Label::workspace, Tier::pinned_host);
      const Block device = context.allocate(5 * 4, Label::workspace);
      auto* const host = static_cast<int32_t*>(pinned.data());
      auto* const at = static_cast<int32_t*>(device.data());
      const auto copy = [](int32_t* to, const int32_t* from, StreamRef on) {
        cuda_copy(to, from, 4, on);
      };
      const std::unique_ptr<CudaGraph> graph = record_cuda_graph(stream, [&] {
        copy(at + 1, at, stream);
        other->wait(stream->record());
        copy(at + 2, at + 1, other);
        if (takes_back) stream->wait(other->record());
        copy(at + 3, at + 2, takes_back ? stream : other);
      });
      for (const int32_t next : {4, 5}) {
        host[0] = next;
        copy(at, host, other);  // a launch waits for it
        graph->launch(stream);
        copy(at + 4, at + 3, other);
        copy(host + 1, at + 4, other);
        copy(host + 2, at + 3, stream);
        context.synchronize();
        if (host[1] != next || host[2] != next) ++wrong;
      }
    }
    return wrong;
  };
  EXPECT_EQ(wrong(true), 0);
  EXPECT_EQ(wrong(false), 0);
  emulator::set_ignores_stream_waits(true);
  EXPECT_GT(wrong(true), 0);
  EXPECT_GT(wrong(false), 0);
  emulator::set_ignores_stream_waits(false);
}

TEST_F(EmulatedRuntime, CaptureWithoutItsJoin_IsAnError) {
  cudaStream_t origin = nullptr, fork = nullptr;
  cudaEvent_t event = nullptr;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&origin, 0), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&fork, 0), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  const auto capture = [&](bool joins) {
    cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(event, origin);
    EXPECT_EQ(cudaStreamWaitEvent(fork, event, 0), cudaSuccess);
    cudaLaunchHostFunc(
        fork, [](void*) {}, nullptr);
    EXPECT_EQ(cudaStreamEndCapture(fork, &graph), cudaErrorStreamCaptureUnmatched);
    cudaEventRecord(event, fork);
    if (joins) cudaStreamWaitEvent(origin, event, 0);
    const cudaError_t status = cudaStreamEndCapture(origin, &graph);
    EXPECT_EQ(cudaStreamSynchronize(fork), cudaSuccess) << "it captures no more";
    EXPECT_EQ(cudaStreamWaitEvent(fork, event, 0), cudaErrorCapturedEvent);
    return status;
  };
  EXPECT_EQ(capture(false), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(capture(true), cudaSuccess);
  cudaGraphDestroy(graph);
  cudaEventDestroy(event);
  cudaStreamDestroy(fork);
  cudaStreamDestroy(origin);
}

TEST_F(EmulatedRuntime, WhatAGraphCannotRepeat_IsRefused) {
  Context context({.device = kGpu});
  const ContextScope scope(context);
  const StreamRef stream = context.compute();
  const StreamRef other = context.stream(StreamRole::copy_in);
  const Block block = context.allocate(8, Label::workspace);
  std::vector<char> pageable(8);
  Event inside;
  const auto message = [&](const std::function<void()>& body) -> std::string {
    try {
      record_cuda_graph(stream, body);
    } catch (const CudaError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message([&] { stream->synchronize(); }), HasSubstr("the host cannot wait"));
  EXPECT_THAT(message([&] { stream->enqueue("a sum on the host", [] {}); }),
              HasSubstr("a sum on the host: a task of the host cannot be part"));
  EXPECT_THAT(message([&] { cuda_copy(block.data(), pageable.data(), 8, stream); }),
              HasSubstr("pageable host memory cannot be part"));
  EXPECT_THAT(message([&] { stream->record().wait(); }), HasSubstr("cannot be waited for"));
  EXPECT_THAT(message([&] {
                other->wait(stream->record());
                other->synchronize();
              }),
              HasSubstr("the host cannot wait"));
  EXPECT_EQ(message([&] { other->wait(stream->record()); }), "");
  EXPECT_EQ(message([&] {
              inside = stream->record();
              EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
            }),
            "");
  other->wait(inside);  // of a recording that has ended, like any other
  context.synchronize();
}

// Memory may be new, or come from another stream, while a stream records.
TEST_F(EmulatedRuntime, MemoryTakenInARecording_WaitsForItsLastUseOutside) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    emulator::set_runtime_seed(seed);
    Context context({.device = kGpu});
    const ContextScope scope(context);
    const StreamRef stream = context.compute();
    const StreamRef other = context.stream(StreamRole::copy_in);
    constexpr int64_t kBytes = int64_t{3} << 20;
    Block source = context.allocate(kBytes, Label::workspace, Tier::pinned_host);
    std::memset(source.data(), 7, kBytes);
    Block block = context.allocator().allocate(kBytes, Tier::device, Label::workspace, other);
    void* const place = block.data();
    cuda_copy(place, source.data(), kBytes, other);
    Block result = context.allocate(kBytes, Label::workspace, Tier::pinned_host);
    cuda_copy(result.data(), place, kBytes, other);
    block.reset();
    KeptMemory kept(context.allocator());
    kept.open();
    const Block zeros = context.allocate(kBytes, Label::workspace, Tier::pinned_host);
    std::memset(zeros.data(), 0, kBytes);
    const std::unique_ptr<CudaGraph> graph = record_cuda_graph(stream, [&] {
      const Block again = context.allocate(kBytes, Label::workspace);
      ASSERT_EQ(again.data(), place);
      cuda_copy(again.data(), zeros.data(), kBytes, stream);
      const Block fresh = context.allocate(int64_t{40} << 20, Label::workspace);
      cuda_copy(fresh.data(), again.data(), kBytes, stream);
    });
    kept.close();
    graph->launch(stream);
    context.synchronize();
    EXPECT_EQ(static_cast<char*>(result.data())[kBytes - 1], 7) << "seed " << seed;
  }
}

}  // namespace runtime_test
}  // namespace zinc
