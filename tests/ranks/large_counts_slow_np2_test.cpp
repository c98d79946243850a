// Counts beyond what an int holds, through MPI messages: two ranks with 2.1 GiB each.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "comm/world.h"
#include "tests/comm/rank_data.h"

namespace zinc::comm::testing {
namespace large_counts_slow_np2_test {

constexpr int64_t kPartBytes = (int64_t{1} << 30) + 8 * 11;

uint64_t word_of(int rank, int64_t i) {
  return scramble(static_cast<uint64_t>(rank) * 77 + static_cast<uint64_t>(i));
}

void fill(std::vector<uint8_t>& bytes, int64_t begin, int rank) {
  for (int64_t i = 0; i < kPartBytes / 8; ++i) {
    const uint64_t word = word_of(rank, i);
    std::memcpy(bytes.data() + begin + i * 8, &word, 8);
  }
}

int64_t first_wrong(const std::vector<uint8_t>& bytes, int64_t begin, int rank) {
  for (int64_t i = 0; i < kPartBytes / 8; ++i) {
    const uint64_t word = word_of(rank, i);
    if (std::memcmp(bytes.data() + begin + i * 8, &word, 8) != 0) return i;
  }
  return -1;
}

TEST(LargeCounts, AllGatherAndMessages_BeyondTwoGiB_ArriveWhole) {
  World world = connect({.deadline = std::chrono::seconds(120), .shared_memory = false});
  ASSERT_EQ(world.size(), 2);
  Communicator& group = world.communicator();
  const StreamRef stream = world.context().compute();
  std::vector<uint8_t> bytes(static_cast<size_t>(2 * kPartBytes));
  fill(bytes, world.rank() * kPartBytes, world.rank());
  const View whole = view_of(bytes);
  group.all_gather({view_of(bytes, world.rank() * kPartBytes, kPartBytes), whole}, stream).wait();
  EXPECT_EQ(first_wrong(bytes, 0, 0), -1);
  EXPECT_EQ(first_wrong(bytes, kPartBytes, 1), -1);

  if (world.rank() == 0) {
    fill(bytes, 0, 5);
    fill(bytes, kPartBytes, 6);
    group.send(whole, 1, 0, stream).wait();
  } else {
    group.receive(whole, 0, 0, stream).wait();
    EXPECT_EQ(first_wrong(bytes, 0, 5), -1);
    EXPECT_EQ(first_wrong(bytes, kPartBytes, 6), -1);
  }
}

}  // namespace large_counts_slow_np2_test
}  // namespace zinc::comm::testing
