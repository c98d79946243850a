#include "kernels/flat_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace flat_index_test {

using test::HostArray;
using testing::HasSubstr;

TEST(FlatIndex, NamesElementsOfTheTensor) {
  for (const DType dtype : {DType::i32, DType::i64}) {
    const HostArray index = HostArray::random(Shape{2, 5, 3}, dtype, 1, 0.0, 7.0);
    HostArray flat(Shape{2, 5, 3}, DType::i64);
    flat_index({.index = index, .extent = 7, .flat = flat}, test::test_stream());
    const auto whole = [](double value) { return static_cast<int64_t>(value); };
    for (int64_t i = 0; i < index.numel(); ++i) {
      ASSERT_EQ(whole(flat.at(i)), (i / 15 * 7 + whole(index.at(i))) * 3 + i % 3);
    }
    const HostArray row = HostArray::random(Shape{5}, dtype, 2, 0.0, 7.0);
    HostArray rows(Shape{4, 5, 1}, DType::i64);
    flat_index({.index = row, .extent = 7, .flat = rows}, test::test_stream());
    for (int64_t i = 0; i < rows.numel(); ++i) {
      ASSERT_EQ(whole(rows.at(i)), i / 5 * 7 + whole(row.at(i % 5)));
    }
  }
}

TEST(FlatIndex, BadArguments_CostAndMetaDevice) {
  const HostArray index(Shape{2, 5, 3}, DType::i32);
  const HostArray flat(Shape{2, 5, 3}, DType::i64);
  const auto message = [&](const FlatIndex& args) {
    return test::message_of_invalid([&] { flat_index(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.index = HostArray(Shape{4}, DType::i32), .extent = 7, .flat = flat}),
              HasSubstr("flat_index: index of shape [4] for flat of shape [2, 5, 3]"));
  EXPECT_THAT(message({.index = HostArray(Shape{2, 5, 3}, DType::f32), .extent = 7, .flat = flat}),
              HasSubstr("not f32"));
  EXPECT_EQ(cost(FlatIndex{.index = index, .flat = flat}).bytes(), 120 + 240);
  flat_index({.index = test::meta_view(Shape{2, 5, 3}, DType::i32),
              .extent = 7,
              .flat = test::meta_view(Shape{2, 5, 3}, DType::i64, 2)},
             test::test_stream());
}

}  // namespace flat_index_test
}  // namespace zinc::kernels
