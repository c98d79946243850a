#include "core/kept_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "core/executor.h"

namespace zinc {
namespace kept_memory_test {

constexpr int64_t kMiB = int64_t{1} << 20;

class KeptMemoryTest : public testing::Test {
 protected:
  Block take(int64_t bytes) {
    return allocator_->allocate(bytes, Tier::device, Label::workspace, *stream_);
  }
  int64_t live() const { return allocator_->report().at(Tier::device).live; }

  std::unique_ptr<Stream> stream_ = make_inline_stream("compute", 1, nullptr);
  std::shared_ptr<Allocator> allocator_ = Allocator::create(make_meta_memory_source());
};

struct Range {
  uintptr_t begin, end;
  explicit Range(const Block& block)
      : begin(reinterpret_cast<uintptr_t>(block.data())),
        end(begin + static_cast<uintptr_t>(block.bytes())) {}
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

// Blocks of all sizes before, in and after a recording: nobody else ever gets what the recording
// had, and the next recording does.
TEST_F(KeptMemoryTest, WhatARecordingHad_NobodyElseGets) {
  std::mt19937_64 random(3);
  const auto size = [&] { return static_cast<int64_t>(random() % (uint64_t{1} << random() % 24)); };
  std::vector<Block> before;
  for (int i = 0; i < 60; ++i) before.push_back(take(size()));
  for (size_t i = 0; i < before.size(); i += 2) before[i].reset();

  KeptMemory kept(*allocator_);
  std::vector<Range> recorded;
  Block survivor;
  kept.open();
  {
    std::vector<Block> blocks;
    for (int i = 0; i < 200; ++i) {
      recorded.emplace_back(blocks.emplace_back(take(size())));
      if (blocks.size() > 8) blocks.erase(blocks.begin() + static_cast<int64_t>(random() % 8));
    }
    survivor = take(5000);
  }
  kept.close();

  std::vector<Block> after;
  for (int i = 0; i < 300; ++i) {
    const Range range(after.emplace_back(take(size())));
    for (const Range& other : recorded) ASSERT_FALSE(range.overlaps(other)) << "block " << i;
    ASSERT_FALSE(range.overlaps(Range(survivor)));
  }
  after.clear();
  before.clear();
  survivor.reset();
  EXPECT_GT(live(), 0);
}

TEST_F(KeptMemoryTest, RecordingsShareTheirMemory) {
  KeptMemory kept(*allocator_);
  void* place = nullptr;
  for (const int64_t mebibytes : {6, 6, 4}) {
    kept.open();
    EXPECT_EQ(live(), 0);
    {
      const Block block = take(mebibytes * kMiB);
      if (place == nullptr) place = block.data();
      EXPECT_EQ(block.data(), place);
    }
    kept.close();
    EXPECT_EQ(live(), 6 * kMiB) << "all that any of them had";
    EXPECT_EQ(allocator_->report().at(Tier::device, Label::activations).live, 6 * kMiB);
  }
}

TEST_F(KeptMemoryTest, ItsEnd_GivesEverythingBack) {
  {
    KeptMemory kept(*allocator_);
    kept.open();
    { const Block small = take(300), large = take(40 * kMiB); }
    kept.close();
    allocator_->release_cached();
    EXPECT_GE(allocator_->report().reserved[0].live, 40 * kMiB);
  }
  EXPECT_EQ(live(), 0);
  allocator_->release_cached();
  EXPECT_EQ(allocator_->report().reserved[0].live, 0);
}

}  // namespace kept_memory_test
}  // namespace zinc
