#include "core/allocator.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "tests/core/memory_sources.h"

namespace zinc {
namespace allocator_test {

using testing::HasSubstr;
constexpr int64_t kMiB = int64_t{1} << 20;

class AllocatorTest : public testing::Test {
 protected:
  std::shared_ptr<Allocator> make(AllocatorOptions options = {}, FailingSource::Rule fails = {}) {
    std::unique_ptr<MemorySource> source = make_host_memory_source();
    if (fails) source = std::make_unique<FailingSource>(std::move(source), std::move(fails));
    return Allocator::create(std::make_unique<ObservedSource>(std::move(source), log_), options);
  }
  Block take(Allocator& allocator, int64_t bytes, Label label = Label::activations,
             Tier tier = Tier::device) {
    return allocator.allocate(bytes, tier, label, *stream_);
  }

  std::unique_ptr<Stream> stream_ = make_inline_stream("compute", 1, nullptr);
  std::shared_ptr<SourceLog> log_ = std::make_shared<SourceLog>();
};

TEST_F(AllocatorTest, Block_KnowsWhatWasAskedFor) {
  const auto allocator = make();
  const Block block = take(*allocator, 1000, Label::optimizer, Tier::pinned_host);
  EXPECT_TRUE(block);
  EXPECT_EQ(block.bytes(), 1000);
  EXPECT_EQ(block.tier(), Tier::pinned_host);
  EXPECT_EQ(block.label(), Label::optimizer);
  EXPECT_FALSE(Block());
  EXPECT_EQ(Block().data(), nullptr);
}

TEST_F(AllocatorTest, Report_RoundsEveryBlockAndSeparatesTiersAndLabels) {
  const auto allocator = make();
  const Block a = take(*allocator, 1, Label::parameters);
  const Block b = take(*allocator, 257, Label::gradients);
  const Block c = take(*allocator, 256, Label::gradients);
  const Block d = take(*allocator, 100, Label::gradients, Tier::pinned_host);
  const MemoryReport report = allocator->report();
  EXPECT_EQ(report.at(Tier::device, Label::parameters).live, 256);
  EXPECT_EQ(report.at(Tier::device, Label::gradients).live, 768);
  EXPECT_EQ(report.at(Tier::device, Label::activations).live, 0);
  EXPECT_EQ(report.at(Tier::device).live, 1024);
  EXPECT_EQ(report.at(Tier::pinned_host, Label::gradients).live, 256);
  EXPECT_EQ(report.at(Tier::pinned_host).live, 256);
  EXPECT_EQ(report.at(Tier::nvme).live, 0);
}

TEST_F(AllocatorTest, Peak_IsOfTheTotalNotTheSumOfTheLabels) {
  const auto allocator = make();
  { const Block a = take(*allocator, 1024, Label::parameters); }
  { const Block b = take(*allocator, 2048, Label::gradients); }
  EXPECT_EQ(allocator->report().at(Tier::device, Label::parameters).peak, 1024);
  EXPECT_EQ(allocator->report().at(Tier::device, Label::gradients).peak, 2048);
  EXPECT_EQ(allocator->report().at(Tier::device).peak, 2048);
  EXPECT_EQ(allocator->report().at(Tier::device).live, 0);
}

TEST_F(AllocatorTest, ResetPeaks_StartsFromWhatIsLive) {
  const auto allocator = make();
  const Block kept = take(*allocator, 512, Label::parameters);
  { const Block gone = take(*allocator, 4096, Label::parameters); }
  allocator->reset_peaks();
  EXPECT_EQ(allocator->report().at(Tier::device, Label::parameters).peak, 512);
  EXPECT_EQ(allocator->report().at(Tier::device).peak, 512);
  const MemoryFigures reserved = allocator->report().reserved[0];
  EXPECT_EQ(reserved.peak, reserved.live);
}

TEST_F(AllocatorTest, ZeroBytes_GiveDistinctAddressesThatAreAccounted) {
  const auto allocator = make();
  const Block a = take(*allocator, 0);
  const Block b = take(*allocator, 0);
  EXPECT_NE(a.data(), nullptr);
  EXPECT_NE(a.data(), b.data());
  EXPECT_EQ(a.bytes(), 0);
  EXPECT_EQ(allocator->report().at(Tier::device).live, 2 * kBlockAlignment);
}

TEST_F(AllocatorTest, Alignment_IsOfTheSizeAndTheTier) {
  const auto allocator = make();
  std::vector<Block> blocks;
  const auto check = [&](int64_t bytes, Tier tier, int64_t alignment) {
    blocks.push_back(take(*allocator, bytes, Label::staging, tier));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().data()) % static_cast<uintptr_t>(alignment),
              0u)
        << bytes;
  };
  for (const int64_t bytes : {int64_t{1}, int64_t{300}, kSmallBlockBytes, kSmallBlockBytes + 1,
                              kSmallBlockBytes + 5000, 9 * kMiB}) {
    check(bytes, Tier::device, bytes > kSmallBlockBytes ? kIoAlignment : kBlockAlignment);
    check(bytes, Tier::pinned_host, kIoAlignment);
  }
  // The room up to the next boundary is the block's own.
  for (const Block& a : blocks) {
    for (const Block& b : blocks) {
      if (&a == &b || b.data() < a.data()) continue;
      const int64_t unit =
          a.tier() == Tier::pinned_host || a.bytes() > kSmallBlockBytes ? kIoAlignment : 1;
      const int64_t room = (a.bytes() + unit - 1) / unit * unit;
      EXPECT_GE(static_cast<std::byte*>(b.data()) - static_cast<std::byte*>(a.data()), room);
    }
  }
}

TEST_F(AllocatorTest, Segments_HaveTheDocumentedSizes) {
  constexpr int64_t kQuarter = kLargeSegmentBytes / 4;
  for (const auto& [block_bytes, segment_bytes] : std::vector<std::pair<int64_t, int64_t>>{
           {1, kSegmentBytes},
           {kSmallBlockBytes, kSegmentBytes},
           {kSmallBlockBytes + 1, kLargeSegmentBytes},
           {kQuarter, kLargeSegmentBytes},
           {kQuarter + 1, kQuarter + kSegmentBytes},
           {kLargeSegmentBytes, kLargeSegmentBytes},
           {kLargeSegmentBytes + 1, kLargeSegmentBytes + kSegmentBytes}}) {
    log_ = std::make_shared<SourceLog>();
    const auto allocator = make();
    const Block block = take(*allocator, block_bytes);
    ASSERT_EQ(log_->segments.size(), 1u);
    EXPECT_EQ(log_->segments[0].bytes, segment_bytes) << block_bytes;
    EXPECT_EQ(allocator->report().reserved[0].live, segment_bytes);
  }
}

TEST_F(AllocatorTest, Free_MergesNeighboursInEveryOrder) {
  const std::vector<std::vector<size_t>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                   {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  const auto allocator = make();
  for (const auto& order : orders) {
    std::vector<Block> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(take(*allocator, 512 * 1024));
    const Block last = take(*allocator, 512 * 1024);  // the segment is full
    const void* const first = blocks[0].data();
    for (const size_t i : order) blocks[i].reset();
    const Block merged = take(*allocator, 1024 * 1024);
    EXPECT_EQ(merged.data(), first);
  }
  EXPECT_EQ(log_->num_acquires, 1);
}

TEST_F(AllocatorTest, Fit_IsTheSmallestRangeThenTheLowest) {
  const auto allocator = make();
  std::vector<Block> blocks;
  for (const int64_t kib : {8, 1, 4, 1, 2, 1, 2, 1}) {
    blocks.push_back(take(*allocator, kib * 1024));
  }
  void* const hole4 = blocks[2].data();
  void* const low_hole2 = blocks[4].data();
  blocks[0].reset();
  blocks[2].reset();
  blocks[6].reset();
  blocks[4].reset();
  EXPECT_EQ(take(*allocator, 2048).data(), low_hole2);
  EXPECT_EQ(take(*allocator, 2049).data(), hole4);
}

TEST_F(AllocatorTest, RepeatedStep_TakesNothingFromTheSource) {
  const auto allocator = make();
  const auto step = [&] {
    std::vector<Block> activations;
    for (int i = 0; i < 40; ++i) activations.push_back(take(*allocator, (i % 7 + 1) * 300 * 1024));
    for (int i = 39; i >= 0; --i) {
      const Block workspace = take(*allocator, 3 * kMiB, Label::workspace);
      activations[static_cast<size_t>(i)].reset();
    }
  };
  step();
  const int acquires = log_->num_acquires;
  const MemoryReport first = allocator->report();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(log_->num_acquires, acquires);
  EXPECT_EQ(allocator->report().at(Tier::device).peak, first.at(Tier::device).peak);
}

TEST_F(AllocatorTest, Limit_IsOfLiveBytesAndExact) {
  AllocatorOptions options;
  options.limits[static_cast<size_t>(Tier::device)] = 1024;
  const auto allocator = make(options);
  Block a = take(*allocator, 512, Label::parameters);
  const Block b = take(*allocator, 512, Label::gradients);
  try {
    take(*allocator, 1, Label::activations);
    FAIL() << "the limit was passed";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.asked_bytes(), 1);
    EXPECT_EQ(error.limit_bytes(), 1024);
    const std::string text = error.what();
    EXPECT_THAT(text, HasSubstr("tier device"));
    EXPECT_THAT(text, HasSubstr("1 bytes were asked for activations"));
    EXPECT_THAT(text, HasSubstr("the limit is 1024 bytes"));
    EXPECT_THAT(text, HasSubstr("parameters"));
    EXPECT_THAT(text, HasSubstr("gradients"));
  }
  const Block other_tier = take(*allocator, 4096, Label::staging, Tier::pinned_host);
  a.reset();
  const Block again = take(*allocator, 512);
}

TEST_F(AllocatorTest, Arguments_OutsideTheContract_AreRefused) {
  const auto allocator = make();
  EXPECT_THROW(take(*allocator, -1), InvalidArgument);
  EXPECT_THROW(take(*allocator, 1, Label::optimizer, Tier::nvme), InvalidArgument);
  EXPECT_THROW(Allocator::create(nullptr), InvalidArgument);
}

TEST_F(AllocatorTest, AbsurdSizes_AreOutOfMemory) {
  AllocatorOptions limited;
  limited.limits[0] = std::numeric_limits<int64_t>::max();
  for (const auto& allocator : {make(), make(limited)}) {
    const Block kept = take(*allocator, 256);
    for (const int64_t bytes :
         {std::numeric_limits<int64_t>::max(), int64_t{1} << 61, int64_t{1} << 59}) {
      EXPECT_THROW(take(*allocator, bytes), OutOfMemory) << bytes;
    }
    EXPECT_EQ(allocator->report().at(Tier::device).live, 256);
  }
}

TEST_F(AllocatorTest, ExhaustedSource_GivesCachedSegmentsBackAndTriesAgain) {
  const auto allocator = make({}, FailingSource::beyond(64 * kMiB));
  { const Block first = take(*allocator, 40 * kMiB); }
  EXPECT_EQ(log_->held_bytes(), 40 * kMiB);
  const Block second = take(*allocator, 50 * kMiB);
  EXPECT_EQ(log_->held_bytes(), 50 * kMiB);
  EXPECT_EQ(allocator->report().reserved[0].live, 50 * kMiB);
  EXPECT_EQ(allocator->report().reserved[0].peak, 50 * kMiB);
}

TEST_F(AllocatorTest, ExhaustedSource_TakesASegmentThatJustFits) {
  const auto allocator = make({}, FailingSource::beyond(6 * kMiB));
  const Block block = take(*allocator, 5 * kMiB);
  EXPECT_EQ(log_->held_bytes(), 6 * kMiB);
}

TEST_F(AllocatorTest, ExhaustedSource_WithNothingCached_ThrowsAndLeavesNoTrace) {
  const auto allocator = make({}, FailingSource::beyond(64 * kMiB));
  const Block kept = take(*allocator, 40 * kMiB, Label::parameters);
  const MemoryReport before = allocator->report();
  try {
    take(*allocator, 30 * kMiB);
    FAIL() << "the source was not exhausted";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.asked_bytes(), 30 * kMiB);
    EXPECT_EQ(error.limit_bytes(), -1);
    EXPECT_THAT(error.what(), HasSubstr("parameters"));
  }
  EXPECT_EQ(to_string(allocator->report()), to_string(before));
  const Block fits = take(*allocator, 20 * kMiB);
}

TEST_F(AllocatorTest, OneFailedAcquire_IsSurvived) {
  const auto allocator = make({}, FailingSource::at(2));
  const Block a = take(*allocator, 40 * kMiB);
  const Block b = take(*allocator, 40 * kMiB);
  EXPECT_EQ(log_->held_bytes(), 80 * kMiB);
}

TEST_F(AllocatorTest, ReleaseCached_KeepsSegmentsWithLiveBlocks) {
  const auto allocator = make();
  Block a = take(*allocator, 40 * kMiB);
  const Block b = take(*allocator, 1);
  a.reset();
  allocator->release_cached();
  EXPECT_EQ(log_->held_bytes(), kSegmentBytes);
  EXPECT_EQ(allocator->report().reserved[0].live, kSegmentBytes);
  EXPECT_EQ(allocator->report().reserved[0].peak, 40 * kMiB + kSegmentBytes);
  const Block c = take(*allocator, 40 * kMiB);
  std::memset(c.data(), 1, 40 * kMiB);
}

TEST_F(AllocatorTest, Poison_FillsAtHandOutAndAtFree) {
  const auto allocator = make({.poison = true});
  Block block = take(*allocator, 300);
  auto* const bytes = static_cast<unsigned char*>(block.data());
  EXPECT_EQ(bytes[0], 0xff);
  EXPECT_EQ(bytes[299], 0xff);
  float value = 0;
  std::memcpy(&value, bytes, sizeof value);
  EXPECT_NE(value, value);
  std::memset(bytes, 0, 300);
  block.reset();
  EXPECT_EQ(bytes[0], 0xff);  // cached, so still mapped
  EXPECT_EQ(bytes[299], 0xff);
  block = take(*allocator, 300);
  EXPECT_EQ(block.data(), bytes);
  EXPECT_EQ(make()->report().at(Tier::device).live, 0);
}

TEST_F(AllocatorTest, NoPoison_LeavesBytesAlone) {
  const auto allocator = make();
  Block block = take(*allocator, 300);
  auto* const bytes = static_cast<unsigned char*>(block.data());
  bytes[0] = 7;
  block.reset();
  EXPECT_EQ(bytes[0], 7);
  block = take(*allocator, 300);
  EXPECT_EQ(bytes[0], 7);
}

TEST_F(AllocatorTest, Block_MovesAndFreesOnce) {
  const auto allocator = make();
  Block a = take(*allocator, 256);
  void* const data = a.data();
  Block b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): a moved-from block is empty
  EXPECT_EQ(b.data(), data);
  a = take(*allocator, 512);
  EXPECT_EQ(allocator->report().at(Tier::device).live, 768);
  b = std::move(a);
  EXPECT_EQ(allocator->report().at(Tier::device).live, 512);
  b = std::move(*&b);
  EXPECT_TRUE(b);
  b.reset();
  b.reset();
  EXPECT_EQ(allocator->report().at(Tier::device).live, 0);
}

TEST_F(AllocatorTest, Blocks_KeepTheAllocatorAlive) {
  auto allocator = make();
  Block block = take(*allocator, 256);
  const std::weak_ptr<Allocator> watch = allocator;
  allocator.reset();
  EXPECT_FALSE(watch.expired());
  std::memset(block.data(), 1, 256);
  block.reset();
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(log_->held_bytes(), 0);
}

TEST_F(AllocatorTest, Table_NamesOnlyWhatWasUsed) {
  const auto allocator = make();
  const Block a = take(*allocator, 3 * kMiB / 2, Label::optimizer);
  const std::string table = to_string(allocator->report());
  EXPECT_THAT(table, HasSubstr("optimizer              1.50         1.50"));
  EXPECT_THAT(table, HasSubstr("reserved              32.00        32.00"));
  EXPECT_THAT(table, testing::Not(HasSubstr("gradients")));
  EXPECT_THAT(table, testing::Not(HasSubstr("pinned_host")));
}

}  // namespace allocator_test
}  // namespace zinc
