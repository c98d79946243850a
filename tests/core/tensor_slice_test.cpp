#include "core/tensor_slice.h"

#include <gtest/gtest.h>

#include <utility>

namespace zinc {
namespace tensor_slice_test {

TEST(TensorSlice, PartsOfMoreRanksAreMadeOfWholePartsOfFewer) {
  for (int64_t size = 1; size <= 40; ++size) {
    const auto begin = [&](int64_t part, int64_t count) {
      return TensorSlice::of({size}, 0, {size}, part, count).pieces.front().begin;
    };
    for (const int64_t count : {1, 2, 3, 5}) {
      for (int64_t part = 0; part < count; ++part) {
        EXPECT_EQ(begin(part, count), begin(2 * part, 2 * count)) << size << " by " << count;
        EXPECT_EQ(begin(part, count), begin(4 * part, 4 * count)) << size << " by " << count;
      }
    }
  }
}

TEST(TensorSlice, PartsOfASectionDifferByOneAtMost) {
  for (int64_t size = 1; size <= 20; ++size) {
    int64_t next = 0;
    for (int64_t part = 0; part < 4; ++part) {
      const TensorSlice slice = TensorSlice::of({2, 2 * size}, 1, {size, size}, part, 4);
      ASSERT_EQ(slice.pieces.size(), 2u);
      const auto& [first, second] = std::pair{slice.pieces[0], slice.pieces[1]};
      EXPECT_EQ(first.begin, next);
      EXPECT_EQ(second.begin, size + next);
      EXPECT_EQ(first.count, second.count);
      EXPECT_GE(first.count, size / 4);
      EXPECT_LE(first.count, (size + 3) / 4);
      next += first.count;
    }
    EXPECT_EQ(next, size);
  }
}

}  // namespace tensor_slice_test
}  // namespace zinc
