#include "kernels/permute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace permute_test {

using test::HostArray;
using testing::HasSubstr;
using Order = std::array<int, kMaxRank>;

constexpr DType kAll[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                          DType::i64, DType::i32, DType::u8};

void expect_permuted(const HostArray& x, const Order& order, const HostArray& y) {
  const int rank = x.shape().rank();
  for (int64_t i = 0; i < y.numel(); ++i) {
    std::array<int64_t, kMaxRank> index{};
    int64_t rest = i;
    for (int d = rank - 1; d >= 0; --d) {
      index[static_cast<size_t>(order[static_cast<size_t>(d)])] = rest % y.shape()[d];
      rest /= y.shape()[d];
    }
    int64_t from = 0;
    for (int d = 0; d < rank; ++d) from = from * x.shape()[d] + index[static_cast<size_t>(d)];
    ASSERT_EQ(y.at(i), x.at(from)) << to_string(x.shape()) << " element " << i;
  }
}

TEST(Permute, EveryOrderOfUpToFiveDimensions) {
  for (const Shape& shape : {Shape{5}, Shape{33, 65}, Shape{3, 40, 7}, Shape{2, 3, 33, 5},
                             Shape{2, 1, 35, 3, 4}, Shape{2, 3, 0, 4}}) {
    Order order{0, 1, 2, 3, 4, 5};
    int number = 0;
    do {
      // Launches on the emulator are slow: of five dimensions every seventh order.
      if (test::runs_on_cuda() && shape.rank() == 5 && number++ % 7 != 0) continue;
      const HostArray x = HostArray::random(shape, DType::f32, 1);
      HostArray y(permuted_shape(shape, order), DType::f32);
      permute({.x = x, .order = order, .y = y}, test::test_stream());
      expect_permuted(x, order, y);

      HostArray back(shape, DType::f32);
      permute({.x = y, .order = inverse_order(order, shape.rank()), .y = back},
              test::test_stream());
      ASSERT_TRUE(test::same_bits(back, x));
    } while (std::next_permutation(order.begin(), order.begin() + shape.rank()));
  }
}

TEST(Permute, EveryDTypeWithStrides_Transposes) {
  for (const DType dtype : kAll) {
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{1, 1}, {17, 3}, {64, 64}, {100, 31}, {1025, 33}}) {
      const HostArray x = HostArray::random(Shape{rows, cols}, dtype, 2, 0.0, 250.0);
      HostArray y = HostArray::strided(Shape{cols, rows}, dtype, 3);
      permute({.x = x.with_padding(2), .order = {1, 0}, .y = y}, test::test_stream());
      expect_permuted(x, {1, 0}, y);
    }
  }
}

TEST(Permute, HeadsOfAttention_SameForAllThreadCounts) {
  const HostArray x = HostArray::random(Shape{2, 130, 2, 64}, DType::bf16, 3);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    HostArray y(Shape{2, 2, 130, 64}, DType::bf16);
    permute({.x = x, .order = {0, 2, 1, 3}, .y = y}, test::test_stream());
    expect_permuted(x, {0, 2, 1, 3}, y);
    HostArray z(Shape{2, 2, 64, 130}, DType::bf16);
    permute({.x = x, .order = {0, 2, 3, 1}, .y = z}, test::test_stream());
    expect_permuted(x, {0, 2, 3, 1}, z);
    return std::vector<HostArray>{y, z};
  }));
}

// More tiles than a grid has blocks.
TEST(Permute, ManySmallMatrices_AreTransposed) {
  const HostArray x = HostArray::random(Shape{9000, 2, 3}, DType::f32, 4);
  HostArray y(Shape{9000, 3, 2}, DType::f32);
  permute({.x = x, .order = {0, 2, 1}, .y = y}, test::test_stream());
  expect_permuted(x, {0, 2, 1}, y);
}

TEST(Permute, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{2, 3}, DType::f32);
  HostArray y(Shape{3, 2}, DType::f32);
  const auto message = [&](const Permute& args) {
    return test::message_of_invalid([&] { permute(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = x, .order = {0, 0}, .y = y}), HasSubstr("dimension 0 twice"));
  EXPECT_THAT(message({.x = x, .order = {0, 2}, .y = y}), HasSubstr("dimension 2 of 2"));
  EXPECT_THAT(message({.x = x, .order = {0, 1}, .y = y}), HasSubstr("y must have shape [2, 3]"));
  EXPECT_THAT(message({.x = x, .order = {0, 1}, .y = x}), HasSubstr("must not overlap"));
  EXPECT_EQ(cost(Permute{.x = x, .order = {1, 0}, .y = y}).bytes(), 48);
  permute({.x = test::meta_view(Shape{2, 3}, DType::f32),
           .order = {1, 0},
           .y = test::meta_view(Shape{3, 2}, DType::f32, 2)},
          test::test_stream());
}

}  // namespace permute_test
}  // namespace zinc::kernels
