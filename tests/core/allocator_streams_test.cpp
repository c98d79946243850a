// Note [Stream order of memory], and figures that depend on the sequence of calls alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/allocator.h"
#include "core/error.h"
#include "core/executor.h"
#include "tests/core/memory_sources.h"
#include "tests/core/recording_stream.h"

namespace zinc {
namespace allocator_streams_test {

using std::chrono::milliseconds;
constexpr int64_t kMiB = int64_t{1} << 20;

TEST(AllocatorStreams, SameStream_ReusesAtOnceWithoutWaiting) {
  const auto gather = make_worker_stream("gather", 1, nullptr, 1);
  const auto allocator = Allocator::create(make_host_memory_source());
  std::atomic<bool> open = false;
  gather->enqueue("hold", [&] {
    while (!open) std::this_thread::yield();
  });
  Block a = allocator->allocate(1000, Tier::device, Label::communication, *gather);
  void* const data = a.data();
  a.reset();
  const Block b = allocator->allocate(1000, Tier::device, Label::communication, *gather);
  EXPECT_EQ(b.data(), data);
  EXPECT_FALSE(open);  // nothing waited for the held stream
  open = true;
}

TEST(AllocatorStreams, AnotherStream_WaitsForTheWorkBeforeTheFree) {
  const auto gather = make_worker_stream("gather", 1, nullptr, 1);
  const auto compute = make_inline_stream("compute", 2, nullptr);
  const auto allocator = Allocator::create(make_host_memory_source());
  Block a = allocator->allocate(2 * kMiB, Tier::device, Label::communication, *gather);
  void* const data = a.data();
  std::atomic<bool> written = false;
  gather->enqueue("write", [&] {
    std::this_thread::sleep_for(milliseconds(30));
    written = true;
  });
  a.reset();
  std::atomic<bool> open = false;
  gather->enqueue("after the free", [&] {
    while (!open) std::this_thread::yield();
  });
  const Block b = allocator->allocate(2 * kMiB, Tier::device, Label::activations, *compute);
  EXPECT_EQ(b.data(), data);
  EXPECT_TRUE(written);
  open = true;
}

TEST(AllocatorStreams, Choice_PrefersTheOwnStreamOverABetterFit) {
  const auto s = make_inline_stream("s", 1, nullptr);
  const auto t = make_inline_stream("t", 2, nullptr);
  const auto allocator = Allocator::create(make_host_memory_source());
  Block big = allocator->allocate(8192, Tier::device, Label::workspace, *s);
  const Block between = allocator->allocate(256, Tier::device, Label::workspace, *s);
  Block exact = allocator->allocate(4096, Tier::device, Label::workspace, *t);
  const Block rest = allocator->allocate(256, Tier::device, Label::workspace, *s);
  void* const big_data = big.data();
  void* const exact_data = exact.data();
  big.reset();
  exact.reset();
  const Block a = allocator->allocate(4096, Tier::device, Label::workspace, *s);
  EXPECT_EQ(a.data(), big_data);
  const Block b = allocator->allocate(4096, Tier::device, Label::workspace, *t);
  EXPECT_EQ(b.data(), exact_data);
}

TEST(AllocatorStreams, NeighboursOfSeveralStreams_JoinBeforeANewSegment) {
  const auto log = std::make_shared<SourceLog>();
  const auto allocator =
      Allocator::create(std::make_unique<ObservedSource>(make_host_memory_source(), log));
  const auto s = make_worker_stream("s", 1, nullptr, 1);
  const auto t = make_worker_stream("t", 2, nullptr, 1);
  const auto compute = make_inline_stream("compute", 3, nullptr);
  std::vector<Block> blocks;
  for (int i = 0; i < 16; ++i) {  // fills one large segment, homes in turn
    blocks.push_back(
        allocator->allocate(2 * kMiB, Tier::device, Label::workspace, i % 2 == 0 ? *s : *t));
  }
  std::atomic<int> done = 0;
  for (Stream* stream : {s.get(), t.get()}) {
    stream->enqueue("use", [&] {
      std::this_thread::sleep_for(milliseconds(20));
      ++done;
    });
  }
  void* const third = blocks[3].data();
  for (size_t i = 3; i < 6; ++i) blocks[i].reset();
  const Block joined = allocator->allocate(5 * kMiB, Tier::device, Label::workspace, *compute);
  EXPECT_EQ(joined.data(), third);
  EXPECT_EQ(done, 2);  // the stream waited for both
  EXPECT_EQ(log->num_acquires, 1);
}

TEST(AllocatorStreams, Waits_AreForOtherStreamsOnlyAndForTheEventOfTheFree) {
  RecordingStream s("s");
  RecordingStream t("t");
  const auto allocator = Allocator::create(make_host_memory_source());
  Block block = allocator->allocate(8192, Tier::device, Label::workspace, s);
  block.reset();
  block = allocator->allocate(8192, Tier::device, Label::workspace, s);
  EXPECT_TRUE(s.waited_for.empty());
  block.reset();
  ASSERT_EQ(s.num_records, 2);
  block = allocator->allocate(8192, Tier::device, Label::workspace, t);
  EXPECT_TRUE(s.waited_for.empty());
  ASSERT_EQ(t.waited_for.size(), 1u);
  EXPECT_EQ(t.waited_for[0], s.recorded[1]);
}

TEST(AllocatorStreams, JoinedRanges_LeaveTheRestToTheStreamOfTheLast) {
  RecordingStream s("s");
  RecordingStream t("t");
  RecordingStream u("u");
  const auto allocator = Allocator::create(make_meta_memory_source());
  std::vector<Block> blocks;
  for (int i = 0; i < 16; ++i) {  // fills one large segment, homes in turn
    RecordingStream& home = i % 2 == 0 ? s : t;
    blocks.push_back(allocator->allocate(2 * kMiB, Tier::device, Label::workspace, home));
  }
  auto* const first = static_cast<std::byte*>(blocks[3].data());
  blocks[3].reset();
  blocks[4].reset();
  const Block joined = allocator->allocate(5 * kMiB / 2, Tier::device, Label::workspace, u);
  EXPECT_EQ(joined.data(), first);
  ASSERT_EQ(u.waited_for.size(), 2u);
  EXPECT_EQ(u.waited_for[0], t.recorded[0]);
  EXPECT_EQ(u.waited_for[1], s.recorded[0]);
  const Block rest = allocator->allocate(3 * kMiB / 2, Tier::device, Label::workspace, s);
  EXPECT_EQ(rest.data(), first + 5 * kMiB / 2);
  EXPECT_TRUE(s.waited_for.empty());
}

TEST(AllocatorStreams, JoinedRanges_AreTheSmallestRun) {
  RecordingStream s("s");
  RecordingStream t("t");
  const auto allocator = Allocator::create(make_meta_memory_source());
  std::vector<Block> blocks;
  for (int i = 0; i < 16; ++i) {
    RecordingStream& home = i % 2 == 0 ? s : t;
    blocks.push_back(allocator->allocate(2 * kMiB, Tier::device, Label::workspace, home));
  }
  for (const size_t i : {0, 1, 2, 6, 7, 11, 12, 13}) blocks[i].reset();
  const void* const wanted = static_cast<std::byte*>(blocks[5].data()) + 2 * kMiB;
  const Block joined = allocator->allocate(4 * kMiB, Tier::device, Label::workspace, s);
  EXPECT_EQ(joined.data(), wanted);
}

TEST(AllocatorStreams, DeadHomeStream_FreesAndReuses) {
  const auto compute = make_inline_stream("compute", 1, nullptr);
  const auto allocator = Allocator::create(make_host_memory_source(), {.poison = true});
  Block freed_before;
  Block freed_after;
  {
    const auto gather = make_worker_stream("gather", 2, nullptr, 1);
    freed_before = allocator->allocate(4096, Tier::device, Label::communication, *gather);
    freed_after = allocator->allocate(4096, Tier::device, Label::communication, *gather);
    freed_before.reset();
  }
  void* const data = freed_after.data();
  freed_after.reset();
  const Block a = allocator->allocate(4096, Tier::device, Label::workspace, *compute);
  const Block b = allocator->allocate(4096, Tier::device, Label::workspace, *compute);
  EXPECT_TRUE(a.data() == data || b.data() == data);
}

// Were it taken for the dead one, its blocks would be freed without an event.
TEST(AllocatorStreams, StreamAtTheAddressOfADeadOne_IsAnotherHome) {
  const auto allocator = Allocator::create(make_host_memory_source());
  RecordingStream other("other");
  std::optional<RecordingStream> stream;
  stream.emplace("first");
  Block block = allocator->allocate(4096, Tier::device, Label::workspace, *stream);
  stream.reset();
  block.reset();
  stream.emplace("second");
  block = allocator->allocate(4096, Tier::device, Label::workspace, *stream);
  EXPECT_TRUE(stream->waited_for.empty());
  block.reset();
  ASSERT_EQ(stream->num_records, 1);
  block = allocator->allocate(4096, Tier::device, Label::workspace, other);
  ASSERT_EQ(other.waited_for.size(), 1u);
  EXPECT_EQ(other.waited_for[0], stream->recorded[0]);
}

TEST(AllocatorStreams, Segments_AreGivenBackOnlyAfterTheWorkThatUsesThem) {
  const auto log = std::make_shared<SourceLog>();
  std::atomic<bool> written = false;
  bool released_after = false;
  log->on_release = [&](void*, int64_t) { released_after = written; };
  const auto gather = make_worker_stream("gather", 1, nullptr, 1);
  const auto allocator = Allocator::create(std::make_unique<ObservedSource>(
      std::make_unique<FailingSource>(make_host_memory_source(), FailingSource::beyond(64 * kMiB)),
      log));
  Block block = allocator->allocate(40 * kMiB, Tier::device, Label::communication, *gather);
  gather->enqueue("write", [&, data = block.data()] {
    std::this_thread::sleep_for(milliseconds(30));
    std::memset(data, 1, 40 * kMiB);
    written = true;
  });
  block.reset();
  const Block other = allocator->allocate(50 * kMiB, Tier::device, Label::communication, *gather);
  EXPECT_TRUE(released_after);
}

TEST(AllocatorStreams, FailedHomeStream_IsReportedAtReuseAndNothingIsLost) {
  const auto gather = make_worker_stream("gather", 1, nullptr, 1);
  const auto compute = make_inline_stream("compute", 2, nullptr);
  const auto allocator = Allocator::create(make_host_memory_source(), {.poison = true});
  Block block = allocator->allocate(4096, Tier::device, Label::communication, *gather);
  gather->enqueue("throw", [] { throw DataError("bad shard"); });
  block.reset();
  EXPECT_THROW(allocator->allocate(4096, Tier::device, Label::activations, *compute), DataError);
  EXPECT_EQ(allocator->report().at(Tier::device).live, 0);
  block = allocator->allocate(4096, Tier::device, Label::communication, *gather);
  block.reset();
  allocator->release_cached();
  EXPECT_EQ(allocator->report().reserved[0].live, 0);
}

// Every block is filled by its home stream with the block's own pattern, and checked by the same
// stream just before it is freed. Reuse that overtakes the work of the previous owner shows as a
// foreign pattern. Sizes around the pools' limit and few segments make reuse frequent.
int64_t foreign_bytes(uint64_t seed, bool poison) {
  ShuffledExecutor executor(seed);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(executor.make_stream("s", i + 1, nullptr));
  const auto allocator = Allocator::create(make_host_memory_source(), {.poison = poison});
  const Block ballast =
      allocator->allocate(kSmallBlockBytes, Tier::device, Label::workspace, *streams[0]);
  const Block more_ballast = allocator->allocate(kSmallBlockBytes - 96 * 1024, Tier::device,
                                                 Label::workspace, *streams[0]);
  struct Owned {
    Block block;
    Stream* home;
    unsigned char pattern;
  };
  std::vector<Owned> owned;
  int64_t foreign = 0;
  std::mt19937_64 random(seed);
  const auto give_back = [&](size_t i) {
    Owned& one = owned[i];
    one.home->enqueue(
        "check", [&foreign, data = one.block.data(), n = one.block.bytes(), pattern = one.pattern] {
          const auto* bytes = static_cast<const unsigned char*>(data);
          foreign += std::count_if(bytes, bytes + n, [&](unsigned char b) { return b != pattern; });
        });
    owned.erase(owned.begin() + static_cast<std::ptrdiff_t>(i));
  };
  for (int step = 0; step < 300; ++step) {
    if (owned.size() > 3 || (!owned.empty() && random() % 2 == 0)) {
      give_back(random() % owned.size());
      continue;
    }
    Stream& home = *streams[random() % streams.size()];
    const auto bytes = static_cast<int64_t>(1 + random() % (12 * 1024));
    const auto pattern = static_cast<unsigned char>(1 + step % 250);
    owned.push_back(
        {allocator->allocate(bytes, Tier::device, Label::workspace, home), &home, pattern});
    home.enqueue("fill", [data = owned.back().block.data(), bytes, pattern] {
      std::memset(data, pattern, static_cast<size_t>(bytes));
    });
  }
  while (!owned.empty()) give_back(0);
  executor.drain();
  EXPECT_EQ(allocator->report().reserved[0].peak, kSegmentBytes);
  return foreign;
}

TEST(AllocatorStreams, ShuffledStreams_NeverSeeEachOthersBytes) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    ASSERT_EQ(foreign_bytes(seed, seed % 2 == 0), 0) << "seed " << seed;
  }
}

// The observations of a random program of allocations and frees on three streams, at every step.
struct Transcript {
  std::vector<std::string> steps;
};

Transcript run_program(uint64_t seed, std::unique_ptr<MemorySource> source,
                       const std::vector<std::unique_ptr<Stream>>& streams, bool poison) {
  const auto log = std::make_shared<SourceLog>();
  AllocatorOptions options{.poison = poison};
  options.limits[0] = 20 * kMiB;
  const auto allocator =
      Allocator::create(std::make_unique<ObservedSource>(std::move(source), log), options);
  std::vector<Block> blocks;
  Transcript transcript;
  std::mt19937_64 random(seed);
  for (int step = 0; step < 1500; ++step) {
    std::string seen;
    const uint64_t action = random() % 100;
    if (action < 55) {
      const int magnitude = static_cast<int>(random() % 25);
      const auto bytes = static_cast<int64_t>(random() % (uint64_t{1} << magnitude));
      const auto tier = static_cast<Tier>(random() % 4 == 0 ? 1 : 0);
      const auto label = static_cast<Label>(random() % kNumLabels);
      try {
        blocks.push_back(
            allocator->allocate(bytes, tier, label, *streams[random() % streams.size()]));
        seen = log->place_of(blocks.back().data());
      } catch (const OutOfMemory& error) {
        seen = error.what();
      }
    } else if (action < 98 && !blocks.empty()) {
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(random() % blocks.size()));
    } else if (action == 98) {
      allocator->release_cached();
    } else if (action == 99) {
      allocator->reset_peaks();
    }
    const MemoryReport report = allocator->report();
    for (int t = 0; t < kNumTiers; ++t) {
      const auto tier = static_cast<Tier>(t);
      const auto add = [&](const MemoryFigures& figures) {
        seen += str(" ", figures.live, "/", figures.peak);
      };
      add(report.at(tier));
      add(report.reserved[static_cast<size_t>(t)]);
      for (int l = 0; l < kNumLabels; ++l) add(report.at(tier, static_cast<Label>(l)));
    }
    EXPECT_EQ(report.reserved[0].live + report.reserved[1].live, log->held_bytes());
    transcript.steps.push_back(seen);
  }
  return transcript;
}

std::vector<std::unique_ptr<Stream>> three_streams(bool workers) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) {
    streams.push_back(workers && i > 0 ? make_worker_stream("s", i + 1, nullptr, 1)
                                       : make_inline_stream("s", i + 1, nullptr));
  }
  return streams;
}

TEST(AllocatorFigures, MetaRun_EqualsTheRealRunAtEveryStep) {
  int refusals = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Transcript meta =
        run_program(seed, make_meta_memory_source(), three_streams(false), false);
    const Transcript host =
        run_program(seed, make_host_memory_source(), three_streams(false), false);
    const Transcript busy =
        run_program(seed, make_host_memory_source(), three_streams(true), seed % 3 == 0);
    ASSERT_EQ(meta.steps.size(), host.steps.size());
    for (size_t i = 0; i < meta.steps.size(); ++i) {
      ASSERT_EQ(meta.steps[i], host.steps[i]) << "seed " << seed << " step " << i;
      ASSERT_EQ(meta.steps[i], busy.steps[i]) << "seed " << seed << " step " << i;
      refusals += meta.steps[i].find("out of memory") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_GT(refusals, 0);  // the limit took part
}

TEST(AllocatorFigures, RandomProgram_BlocksNeverOverlap) {
  const auto streams = three_streams(false);
  const auto allocator = Allocator::create(make_meta_memory_source());
  std::mt19937_64 random(5);
  std::vector<Block> blocks;
  for (int step = 0; step < 4000; ++step) {
    if (blocks.size() > 60 || (!blocks.empty() && random() % 5 < 2)) {
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(random() % blocks.size()));
      continue;
    }
    const auto bytes = static_cast<int64_t>(random() % (uint64_t{1} << (random() % 24)));
    Block block = allocator->allocate(bytes, Tier::device, Label::workspace,
                                      *streams[random() % streams.size()]);
    const auto begin = reinterpret_cast<uintptr_t>(block.data());
    const uintptr_t end = begin + static_cast<uintptr_t>(std::max<int64_t>(bytes, 1));
    for (const Block& other : blocks) {
      const auto other_begin = reinterpret_cast<uintptr_t>(other.data());
      const uintptr_t other_end =
          other_begin + static_cast<uintptr_t>(std::max<int64_t>(other.bytes(), 1));
      ASSERT_TRUE(end <= other_begin || other_end <= begin) << "step " << step;
    }
    blocks.push_back(std::move(block));
  }
  blocks.clear();
  EXPECT_EQ(allocator->report().at(Tier::device).live, 0);
  allocator->release_cached();
  EXPECT_EQ(allocator->report().reserved[0].live, 0);
}

}  // namespace allocator_streams_test
}  // namespace zinc
