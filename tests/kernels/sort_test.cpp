#include "kernels/sort.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace sort_test {

using test::HostArray;
using testing::HasSubstr;

struct Ordered {
  HostArray values, indices;
};

Ordered ordered(const HostArray& x, int64_t k, bool descending) {
  const Device device = test::device_for(x.dtype());
  const test::DeviceScope scope(device);
  const Shape shape{x.shape()[0], k};
  Ordered result{HostArray(shape, x.dtype()), HostArray(shape, DType::i64)};
  const HostArray workspace(Shape{sort_workspace_bytes(x.shape()[0], x.shape()[1], device.kind)},
                            DType::u8);
  sort({.x = x,
        .descending = descending,
        .values = result.values,
        .indices = result.indices,
        .workspace = workspace},
       test::test_stream());
  return result;
}

TEST(Sort, EqualElementsKeepTheirOrder) {
  for (const DType dtype : test::kFloatDTypes) {
    for (const int64_t n : {1, 2, 17, 100, 700}) {
      const HostArray x =
          HostArray::random(Shape{3, n}, DType::i32, 1, -20.0, 20.0).as(dtype).with_padding(2);
      for (const bool descending : {false, true}) {
        for (const int64_t k : {int64_t{0}, int64_t{1}, n / 2, n}) {
          const Ordered got = ordered(x, k, descending);
          for (int64_t r = 0; r < 3; ++r) {
            std::vector<int64_t> indices(static_cast<size_t>(n));
            std::iota(indices.begin(), indices.end(), 0);
            std::ranges::stable_sort(indices, [&](int64_t i, int64_t j) {
              const double a = x.at(r * n + i);
              const double b = x.at(r * n + j);
              return descending ? a > b : a < b;
            });
            for (int64_t i = 0; i < k; ++i) {
              const int64_t place = indices[static_cast<size_t>(i)];
              ASSERT_EQ(got.indices.at(r * k + i), place) << name_of(dtype) << n << " " << k;
              ASSERT_EQ(got.values.at(r * k + i), x.at(r * n + place)) << name_of(dtype) << n;
            }
          }
        }
      }
    }
  }
}

TEST(Sort, NaNIsTheLargest_AndZerosAreEqual) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : test::kFloatDTypes) {
    const HostArray x =
        HostArray::of({0.0, nan, -0.0, inf, -inf, -1.5, -nan, 2.0}, Shape{1, 8}, dtype);
    const int64_t rising[] = {4, 5, 0, 2, 7, 3, 1, 6};
    const int64_t falling[] = {1, 6, 3, 7, 0, 2, 5, 4};
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(ordered(x, 8, false).indices.at(i), rising[i]) << name_of(dtype) << i;
      EXPECT_EQ(ordered(x, 8, true).indices.at(i), falling[i]) << name_of(dtype) << i;
    }
  }
}

TEST(Sort, ManyRows_SameForAllThreadCounts) {
  const HostArray x = HostArray::random(Shape{300, 40}, DType::bf16, 2);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    Ordered result = ordered(x, 5, true);
    return std::vector<HostArray>{result.values, result.indices};
  }));
}

TEST(Sort, BadArguments_CostAndMetaDevice) {
  const HostArray x(Shape{2, 3}, DType::f32);
  const HostArray indices(Shape{2, 4}, DType::i64);
  const auto message = [&](const Sort& args) {
    return test::message_of_invalid([&] { sort(args, test::test_stream()); });
  };
  EXPECT_THAT(
      message({.x = x, .values = HostArray(Shape{2, 4}, DType::f32), .indices = indices}),
      HasSubstr("sort: the first elements of rows of shape [2, 3] cannot have shape [2, 4]"));
  EXPECT_THAT(message({.x = HostArray(Shape{2, 3}, DType::i32), .values = x, .indices = indices}),
              HasSubstr("not i32"));
  EXPECT_EQ(cost(Sort{.x = x, .values = x, .indices = HostArray(Shape{2, 3}, DType::i64)}).bytes(),
            24 + 24 + 48);
  const View nowhere = test::meta_view(Shape{2, 3}, DType::f32);
  const int64_t bytes = sort_workspace_bytes(2, 3, nowhere.device().kind);
  sort({.x = nowhere,
        .values = test::meta_view(Shape{2, 3}, DType::f32, 2),
        .indices = test::meta_view(Shape{2, 3}, DType::i64, 3),
        .workspace = test::meta_view(Shape{bytes}, DType::u8, 4)},
       test::test_stream());
}

}  // namespace sort_test
}  // namespace zinc::kernels
