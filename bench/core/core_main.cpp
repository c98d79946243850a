// Measures the cost of core's calls: a launch on the inline stream, a hand-over to a worker, an
// allocation, a checksum. Prints the median and the best of several batches; run it on an idle
// machine.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/context.h"
#include "core/crc32c.h"
#include "core/trace.h"

namespace {

using zinc::Block;
using zinc::Event;
using zinc::Label;
using zinc::StreamRef;
using zinc::Tier;
using Clock = std::chrono::steady_clock;

constexpr int kBatches = 21;

// Times kBatches batches of `count` calls of `body`.
void report(const std::string& name, int count, const std::function<void(int count)>& body) {
  body(count);  // warm caches and pools
  std::vector<double> ns;
  for (int i = 0; i < kBatches; ++i) {
    const auto begin = Clock::now();
    body(count);
    ns.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / count);
  }
  std::sort(ns.begin(), ns.end());
  fmt::print("{:<52} {:>10.1f} ns median {:>10.1f} ns best\n", name, ns[kBatches / 2], ns[0]);
}

void time_launches() {
  zinc::TraceRecorder trace(0);
  const auto plain = zinc::make_inline_stream("compute", 1, nullptr);
  const auto traced = zinc::make_inline_stream("compute", 1, &trace);
  int64_t sum = 0;
  const auto launch = [&sum](StreamRef stream) {
    return [&sum, stream](int count) {
      for (int i = 0; i < count; ++i) stream.submit("add", [&sum, i] { sum += i; });
    };
  };
  report("submit, inline stream", 1'000'000, launch(*plain));
  report("submit, inline stream with a trace", 100'000, launch(*traced));
}

// Times from enqueue() to the first line of the task, with a worker that has been idle for `idle`.
void time_hand_over(std::chrono::microseconds idle) {
  const auto stream = zinc::make_worker_stream("gather", 1, nullptr, 1);
  constexpr int kSamples = 300;
  std::vector<double> start;
  std::vector<double> round_trip;
  for (int i = 0; i < kSamples; ++i) {
    const auto resume = Clock::now() + idle;
    while (Clock::now() < resume) {
    }
    Clock::time_point ran;
    const auto begin = Clock::now();
    stream->enqueue("look", [&ran] { ran = Clock::now(); });
    stream->synchronize();
    const auto end = Clock::now();
    start.push_back(std::chrono::duration<double, std::micro>(ran - begin).count());
    round_trip.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  std::sort(start.begin(), start.end());
  std::sort(round_trip.begin(), round_trip.end());
  fmt::print(
      "worker idle for {:>5} us: enqueue to run {:>6.1f} us median {:>6.1f} us p90, and back "
      "{:>6.1f} us median\n",
      idle.count(), start[kSamples / 2], start[kSamples * 9 / 10], round_trip[kSamples / 2]);
}

void time_queue() {
  const auto stream = zinc::make_worker_stream("gather", 1, nullptr, 1);
  std::atomic<int64_t> sum = 0;
  report("enqueue and run, worker stream, back to back", 20'000, [&](int count) {
    for (int i = 0; i < count; ++i) {
      stream->enqueue("add", [&sum] { sum.fetch_add(1, std::memory_order_relaxed); });
    }
    stream->synchronize();
  });
}

void time_allocations() {
  zinc::Context context;
  const auto pair = [&](int64_t bytes) {
    return [&context, bytes](int count) {
      for (int i = 0; i < count; ++i) {
        const Block block = context.allocate(bytes, Label::activations);
      }
    };
  };
  report("allocate and free, 4 KiB", 100'000, pair(4096));
  report("allocate and free, 4 MiB", 100'000, pair(4 << 20));
  std::vector<Block> blocks;
  for (int i = 0; i < 2000; ++i) {
    blocks.push_back(context.allocate(1024 * (1 + i * 7919 % 64), Label::parameters));
  }
  for (size_t i = 0; i < blocks.size(); i += 2) blocks[i].reset();
  report("allocate and free, 4 KiB, among 1000 holes", 100'000, pair(4096));
  zinc::Stream& gather = *context.stream(zinc::StreamRole::gather);
  report("allocate and free, 4 KiB, home is a worker", 100'000, [&](int count) {
    for (int i = 0; i < count; ++i) {
      const Block block =
          context.allocator().allocate(4096, Tier::device, Label::communication, gather);
    }
  });
}

void time_checksum() {
  const std::vector<std::byte> data(1 << 20, std::byte{7});
  uint32_t sum = 0;
  report("crc32c of 1 MiB", 100, [&](int count) {
    for (int i = 0; i < count; ++i) sum += zinc::crc32c(data);
  });
}

}  // namespace

int main() {
  time_launches();
  time_queue();
  for (const int idle_us : {0, 20, 200, 2000}) time_hand_over(std::chrono::microseconds(idle_us));
  time_allocations();
  time_checksum();
  return 0;
}
