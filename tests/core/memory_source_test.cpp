#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "core/executor.h"

namespace zinc {
namespace memory_source_test {

TEST(HostMemorySource, Acquire_AnySize_IsZeroedWritableAndAligned) {
  const auto source = make_host_memory_source();
  for (const int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{5000}, kSegmentBytes - 1,
                              kSegmentBytes, kSegmentBytes + 1, 3 * kSegmentBytes + 4096}) {
    for (const Tier tier : {Tier::device, Tier::pinned_host}) {
      void* const data = source->acquire(tier, bytes);
      ASSERT_NE(data, nullptr);
      const int64_t alignment = bytes >= kSegmentBytes ? kSegmentBytes : kIoAlignment;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment), 0u) << bytes;
      auto* const first = static_cast<unsigned char*>(data);
      EXPECT_TRUE(std::all_of(first, first + bytes, [](unsigned char byte) { return byte == 0; }));
      std::memset(data, 1, static_cast<size_t>(bytes));
      source->release(tier, data, bytes);
    }
  }
}

TEST(HostMemorySource, Acquire_MoreThanTheAddressSpace_GivesNull) {
  const auto source = make_host_memory_source();
  EXPECT_EQ(source->acquire(Tier::device, int64_t{1} << 60), nullptr);
}

// The line of /proc/self/smaps that begins with `key`, for the mapping that holds `address`.
std::string mapping_line(const void* address, const std::string& key) {
  std::ifstream smaps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = wanted >= begin && wanted < end;
    } else if (inside && line.rfind(key, 0) == 0) {
      return line;
    }
  }
  return "";
}

TEST(HostMemorySource, Release_OfASegment_UnmapsAllOfIt) {
  const auto source = make_host_memory_source();
  auto* const data = static_cast<std::byte*>(source->acquire(Tier::device, 3 * kSegmentBytes));
  ASSERT_NE(data, nullptr);
  EXPECT_NE(mapping_line(data, "Size:"), "");
  source->release(Tier::device, data, 3 * kSegmentBytes);
  EXPECT_EQ(mapping_line(data, "Size:"), "");
  EXPECT_EQ(mapping_line(data + 3 * kSegmentBytes - 1, "Size:"), "");
}

int64_t mapped_pages() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

TEST(HostMemorySource, AcquireAndRelease_LeaveNoMappingBehind) {
  const auto source = make_host_memory_source();
  const int64_t before = mapped_pages();
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) {
    void* const data = source->acquire(Tier::device, kSegmentBytes);
    source->release(Tier::device, data, kSegmentBytes);
  }
  // A left edge of 4 KiB a round is the smallest leak that there can be.
  EXPECT_LT(mapped_pages() - before, kRounds);
}

TEST(HostMemorySource, Acquire_TakesNoMoreThanWasAskedFor) {
  const auto source = make_host_memory_source();
  const int64_t before = mapped_pages();
  std::vector<std::pair<void*, int64_t>> segments;
  int64_t asked_pages = 0;
  for (int i = 0; i < 50; ++i) {
    const int64_t pages = kSegmentBytes / 4096 + i % 7;  // odd sizes put the edges anywhere
    segments.push_back({source->acquire(Tier::device, pages * 4096), pages * 4096});
    asked_pages += pages;
  }
  EXPECT_LT(mapped_pages() - before, asked_pages + kSegmentBytes / 4096);
  for (const auto& [data, bytes] : segments) source->release(Tier::device, data, bytes);
}

TEST(HostMemorySource, Acquire_ASegment_AsksForHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
    GTEST_SKIP() << "this kernel has no transparent huge pages";
  }
  const auto source = make_host_memory_source();
  void* const data = source->acquire(Tier::device, 2 * kSegmentBytes);
  EXPECT_NE(mapping_line(data, "VmFlags:").find(" hg"), std::string::npos);
  source->release(Tier::device, data, 2 * kSegmentBytes);
}

TEST(HostMemorySource, Poison_RunsInTheOrderOfTheStream) {
  const auto source = make_host_memory_source();
  auto* const data = static_cast<unsigned char*>(source->acquire(Tier::device, 4096));
  ShuffledExecutor executor(1, ShuffledExecutor::Order::latest);
  const auto stream = executor.make_stream("s", 1, nullptr);
  source->poison(Tier::device, data, 4095, *stream);
  EXPECT_EQ(data[0], 0);
  stream->synchronize();
  EXPECT_EQ(data[0], 0xff);
  EXPECT_EQ(data[4094], 0xff);
  EXPECT_EQ(data[4095], 0);
  source->release(Tier::device, data, 4096);
}

TEST(MetaMemorySource, Acquire_Petabytes_GivesAddressesThatDoNotOverlap) {
  const auto source = make_meta_memory_source();
  std::set<std::pair<uintptr_t, uintptr_t>> ranges;
  for (const int64_t bytes : {int64_t{1} << 50, int64_t{1}, int64_t{4097}, int64_t{1} << 50}) {
    const auto begin = reinterpret_cast<uintptr_t>(source->acquire(Tier::device, bytes));
    ASSERT_NE(begin, 0u);
    EXPECT_EQ(begin % kIoAlignment, 0u);
    ranges.insert({begin, begin + static_cast<uintptr_t>(bytes)});
  }
  uintptr_t last_end = 0;
  for (const auto& [begin, end] : ranges) {
    EXPECT_GE(begin, last_end);
    last_end = end;
  }
}

TEST(MetaMemorySource, Acquire_MoreThanItsAddresses_GivesNull) {
  const auto source = make_meta_memory_source();
  EXPECT_EQ(source->acquire(Tier::device, int64_t{1} << 62), nullptr);
}

TEST(MetaMemorySourceDeathTest, Read_OfAMetaAddress_Faults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto source = make_meta_memory_source();
  auto* const data = static_cast<volatile char*>(source->acquire(Tier::device, 4096));
  EXPECT_DEATH({ (void)*data; }, "");
}

}  // namespace memory_source_test
}  // namespace zinc
