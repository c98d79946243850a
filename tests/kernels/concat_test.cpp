#include "kernels/concat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace concat_test {

using test::HostArray;
using testing::HasSubstr;

TEST(Concat, EveryDimension_PartsStandSideBySideAndSplitAgain) {
  for (const DType dtype : {DType::f64, DType::bf16, DType::i32, DType::u8}) {
    for (const int dim : {0, 1, 2, -1}) {
      const int d = dim < 0 ? dim + 3 : dim;
      std::vector<HostArray> parts;
      int64_t total = 0;
      for (const int64_t extent : {3, 0, 1, 17}) {
        Shape shape{2, 5, 4};
        shape.set(d, extent);
        parts.push_back(
            HostArray::random(shape, dtype, uint64_t(extent), 0.0, 200.0).with_padding(extent % 2));
        total += extent;
      }
      Shape whole_shape{2, 5, 4};
      whole_shape.set(d, total);
      HostArray whole = HostArray::strided(whole_shape, dtype, 1);
      const std::vector<ConstView> views(parts.begin(), parts.end());
      concat({.parts = views, .dim = dim, .whole = whole}, test::test_stream());
      int64_t begin = 0;
      for (const HostArray& part : parts) {
        const int64_t extent = part.shape()[d];
        for (int64_t i = 0; i < part.numel(); ++i) {
          int64_t index[3] = {i / part.shape()[2] / part.shape()[1],
                              i / part.shape()[2] % part.shape()[1], i % part.shape()[2]};
          index[d] += begin;
          ASSERT_EQ(whole.at((index[0] * whole_shape[1] + index[1]) * whole_shape[2] + index[2]),
                    part.at(i));
        }
        begin += extent;
      }
      std::vector<HostArray> back;
      for (const HostArray& part : parts) back.emplace_back(part.shape(), dtype);
      const std::vector<View> targets(back.begin(), back.end());
      split({.whole = whole, .dim = dim, .parts = targets}, test::test_stream());
      for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_TRUE(test::same_bits(back[i], parts[i]));
      }
    }
  }
}

TEST(Concat, BadArgumentsAndCost) {
  HostArray a(Shape{2, 3}, DType::f32);
  HostArray b(Shape{3, 3}, DType::f32);
  HostArray whole(Shape{5, 3}, DType::f32);
  const auto message = [&](std::vector<ConstView> parts, int dim) {
    return test::message_of_invalid(
        [&] { concat({.parts = parts, .dim = dim, .whole = whole}, test::test_stream()); });
  };
  EXPECT_EQ(message({a, b}, 0), "");
  EXPECT_THAT(message({a, a}, 0), HasSubstr("the parts have 4 along dimension 0, the whole has 5"));
  EXPECT_THAT(message({a, b}, 1), HasSubstr("a part must have shape [5, 3]"));
  EXPECT_THAT(message({a, b}, 2), HasSubstr("dimension 2 of [5, 3]"));
  EXPECT_THAT(message({a, HostArray(Shape{3, 3}, DType::bf16)}, 0), HasSubstr("must be f32"));
  EXPECT_THAT(message({a, HostArray(Shape{9}, DType::f32)}, 0), HasSubstr("a part of [9]"));
  EXPECT_EQ(cost(Concat{.parts = {}, .whole = whole}).bytes(), 120);
  EXPECT_EQ(cost(Split{.whole = whole, .parts = {}}).bytes(), 120);
}

}  // namespace concat_test
}  // namespace zinc::kernels
