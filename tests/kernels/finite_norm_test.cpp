#include "kernels/finite_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace finite_norm_test {

using test::HostArray;
using testing::HasSubstr;

struct Result {
  HostArray sums;
  int64_t first_nonfinite;
};

// Runs on the elements from `begin` on.
Result run(const HostArray& x, int64_t begin = 0) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  const View part = x.view().narrow(0, begin, x.numel() - begin);
  HostArray sums(Shape{num_norm_chunks(part.numel())}, DType::f64);
  HostArray first(Shape{1}, DType::i64);
  finite_norm({.x = part, .chunk_sums = sums, .first_nonfinite = first}, test::test_stream());
  return {sums, static_cast<int64_t>(first.at(0))};
}

// The order that the header states: 16 lanes, then a tree of lanes.
double chunk_sum(const HostArray& x, int64_t begin, int64_t end) {
  std::vector<double> lane(16, 0.0);
  for (int64_t i = begin; i < end; ++i) {
    lane[static_cast<size_t>((i - begin) % 16)] += x.at(i) * x.at(i);
  }
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  }
  return lane[0];
}

TEST(FiniteNorm, EveryDTypeAndSize_SumsChunksInTheStatedOrder) {
  for (const DType dtype : test::kFloatDTypes) {
    for (const int64_t n : {0, 1, 3, 17, 1023, 1024, 1025, 5000, 40'001}) {
      const HostArray x = HostArray::random(Shape{n}, dtype, 1);
      const Result r = run(x);
      EXPECT_EQ(r.first_nonfinite, -1);
      for (int64_t k = 0; k < num_norm_chunks(n); ++k) {
        ASSERT_EQ(r.sums.at(k), chunk_sum(x, 1024 * k, std::min(n, 1024 * (k + 1))))
            << name_of(dtype) << " n " << n << " chunk " << k;
      }
    }
  }
}

TEST(FiniteNorm, ArrayThatBeginsAnywhere_HasTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    HostArray x = HostArray::random(Shape{3000}, dtype, 4);
    for (const int64_t begin : {1, 2, 4, 7}) {
      HostArray alone(Shape{3000 - begin}, dtype);
      for (int64_t i = 0; i < alone.numel(); ++i) alone.set(i, x.at(begin + i));
      EXPECT_TRUE(test::same_bits(run(x, begin).sums, run(alone).sums)) << begin;
    }
    x.set(2000, std::numeric_limits<double>::infinity());
    EXPECT_EQ(run(x, 7).first_nonfinite, 1993);
  }
}

TEST(FiniteNorm, FirstNonfiniteElement_IsNamed) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : test::kFloatDTypes) {
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), inf, -inf}) {
      for (const int64_t place : {0, 15, 1023, 1024, 4097, 4999}) {
        HostArray x = HostArray::random(Shape{5000}, dtype, 2);
        x.set(place, bad);
        x.set(4999, bad);
        EXPECT_EQ(run(x).first_nonfinite, place) << name_of(dtype) << " " << bad;
      }
    }
  }
}

TEST(FiniteNorm, LargestValues_AreFinite) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const double largest = dtype == DType::f16    ? 65504.0
                           : dtype == DType::bf16 ? 0x1.FEp127
                                                  : double(std::numeric_limits<float>::max());
    const Result r = run(HostArray::full(Shape{2048}, dtype, largest));
    EXPECT_EQ(r.first_nonfinite, -1);
    // Each lane adds 64 squares.
    const double expected = 1024.0 * largest * largest;
    EXPECT_NEAR(r.sums.at(1), expected, 64 * 0x1p-53 * expected);
  }
  // f64: the squares overflow, the elements are finite.
  const Result r = run(HostArray::full(Shape{2000}, DType::f64, 1e200));
  EXPECT_EQ(r.first_nonfinite, -1);
  EXPECT_TRUE(std::isinf(r.sums.at(0)));
}

TEST(FiniteNorm, LongArray_SameBitsForAllThreadCounts) {
  const HostArray x = HostArray::random(Shape{300'001}, DType::bf16, 3);
  EXPECT_TRUE(
      test::same_for_all_thread_counts([&] { return std::vector<HostArray>{run(x).sums}; }));
}

TEST(FiniteNorm, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{2000}, DType::bf16);
  HostArray sums(Shape{2}, DType::f64);
  HostArray short_sums(Shape{1}, DType::f64);
  HostArray first(Shape{1}, DType::i64);
  const auto message = [&](const FiniteNorm& args) {
    return test::message_of_invalid([&] { finite_norm(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = x, .chunk_sums = short_sums, .first_nonfinite = first}),
              HasSubstr("chunk_sums must have shape [2], not [1]"));
  EXPECT_THAT(message({.x = x, .chunk_sums = sums, .first_nonfinite = sums}),
              HasSubstr("first_nonfinite must be i64"));
  EXPECT_EQ(cost(FiniteNorm{.x = x, .chunk_sums = sums, .first_nonfinite = first}).bytes(),
            4000 + 16 + 8);
  finite_norm({.x = test::meta_view(Shape{2000}, DType::f32),
               .chunk_sums = test::meta_view(Shape{2}, DType::f64, 2),
               .first_nonfinite = test::meta_view(Shape{1}, DType::i64, 3)},
              test::test_stream());
}

}  // namespace finite_norm_test
}  // namespace zinc::kernels
