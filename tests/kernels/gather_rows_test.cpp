#include "kernels/gather_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace gather_rows_test {

using test::HostArray;
using testing::HasSubstr;

constexpr DType kAll[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                          DType::i64, DType::i32, DType::u8};

HostArray workspace_for(int64_t n) {
  return HostArray(Shape{scatter_add_rows_workspace_bytes(n)}, DType::u8);
}

TEST(GatherRows, EveryDTypeAndStride_CopiesTheNamedRows) {
  for (const DType dtype : kAll) {
    for (const int64_t cols : {1, 3, 130}) {
      const HostArray x = HostArray::random(Shape{20, cols}, dtype, 1, 0.0, 200.0);
      const HostArray ids = HostArray::random(Shape{33}, DType::i32, 2, 0.0, 20.0);
      HostArray y = HostArray::strided(Shape{33, cols}, dtype, 4);
      gather_rows({.x = x.with_padding(2), .ids = ids, .y = y}, test::test_stream());
      for (int64_t i = 0; i < y.numel(); ++i) {
        ASSERT_EQ(y.at(i), x.at(static_cast<int64_t>(ids.at(i / cols)) * cols + i % cols));
      }
    }
  }
}

TEST(ScatterRows, WritesTheNamedRowsAndNoOthers) {
  for (const DType dtype : kAll) {
    const HostArray x = HostArray::random(Shape{3, 17}, dtype, 3, 0.0, 200.0);
    const HostArray ids = HostArray::of({4, 0, 2}, Shape{3}, DType::i64);
    HostArray y = HostArray::full(Shape{5, 17}, dtype, 7.0).with_padding(3);
    scatter_rows({.x = x, .ids = ids, .y = y}, test::test_stream());
    const std::vector<int64_t> source{1, -1, 2, -1, 0};
    for (int64_t i = 0; i < y.numel(); ++i) {
      const int64_t from = source[static_cast<size_t>(i / 17)];
      ASSERT_EQ(y.at(i), from < 0 ? 7.0 : x.at(from * 17 + i % 17));
    }
  }
}

TEST(ScatterAddRows, IsTheGradientOfGather) {
  const test::DeviceScope scope(kCpu);
  const HostArray x = HostArray::random(Shape{6, 5}, DType::f64, 4);
  const HostArray ids = HostArray::random(Shape{11}, DType::i32, 5, 0.0, 6.0);
  const HostArray dy = HostArray::random(Shape{11, 5}, DType::f64, 6);
  const HostArray numeric = test::numeric_gradient(x, dy, [&](const HostArray& at) {
    HostArray y(Shape{11, 5}, DType::f64);
    gather_rows({.x = at, .ids = ids, .y = y}, test::test_stream());
    return y;
  });
  HostArray dx = HostArray::full(x.shape(), DType::f64, 0.0);
  scatter_add_rows({.x = dy, .ids = ids, .y = dx, .workspace = workspace_for(11)},
                   test::test_stream());
  EXPECT_LE(test::relative_l2(dx, numeric), test::kGradientTolerance);
}

TEST(ScatterAddRows, EqualIds_AddInF32AndRoundOnce) {
  // 256 + 200 ones: each single addition would be lost in bf16.
  const HostArray x = HostArray::full(Shape{200, 3}, DType::bf16, 1.0).with_padding(1);
  const HostArray ids = HostArray::full(Shape{200}, DType::i64, 1.0);
  const HostArray workspace = workspace_for(200);
  HostArray y = HostArray::full(Shape{3, 3}, DType::bf16, 256.0).with_padding(2);
  scatter_add_rows({.x = x, .ids = ids, .y = y, .workspace = workspace}, test::test_stream());
  EXPECT_EQ(y.values(), (std::vector<double>{256, 256, 256, 456, 456, 456, 256, 256, 256}));
  HostArray wide = HostArray::full(Shape{3, 3}, DType::f32, 0.5);
  scatter_add_rows({.x = x, .ids = ids, .y = wide, .workspace = workspace}, test::test_stream());
  EXPECT_EQ(wide.at(3), 200.5);
  EXPECT_EQ(wide.at(0), 0.5);
}

TEST(ScatterAddRows, ManyRows_SameBitsForAllThreadCounts) {
  const HostArray ids = HostArray::random(Shape{3000}, DType::i32, 7, 0.0, 100.0);
  const HostArray x = HostArray::random(Shape{3000, 150}, DType::f32, 8);
  const HostArray workspace = workspace_for(3000);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    HostArray y = HostArray::full(Shape{100, 150}, DType::f32, 0.0);
    scatter_add_rows({.x = x, .ids = ids, .y = y, .workspace = workspace}, test::test_stream());
    HostArray z(Shape{3000, 150}, DType::f32);
    gather_rows({.x = y, .ids = ids, .y = z}, test::test_stream());
    return std::vector<HostArray>{y, z};
  }));
}

void expect_bad_id_is_named(const HostArray& x, const HostArray& ids, const HostArray& y) {
  EXPECT_THAT(test::message_of_invalid(
                  [&] { gather_rows({.x = x, .ids = ids, .y = y}, test::test_stream()); }),
              HasSubstr("gather_rows: ids[1] is 9, outside [0, 5)"));
  EXPECT_THAT(test::message_of_invalid(
                  [&] { scatter_rows({.x = y, .ids = ids, .y = x}, test::test_stream()); }),
              HasSubstr("scatter_rows: ids[1] is 9"));
  EXPECT_THAT(test::message_of_invalid([&] {
                scatter_add_rows({.x = y, .ids = ids, .y = x, .workspace = workspace_for(2)},
                                 test::test_stream());
              }),
              HasSubstr("scatter_add_rows: ids[1] is 9"));
}

// Note [Indices outside their range on a GPU]
TEST(GatherRows, BadIdOnAGpu_TouchesNoRow) {
  if (!test::runs_on_cuda()) return;
  const HostArray ids = HostArray::of({1, 9}, Shape{2}, DType::i32);
  const HostArray table = HostArray::full(Shape{5, 3}, DType::f32, 2.0);
  HostArray y(Shape{2, 3}, DType::f32);
  gather_rows({.x = table, .ids = ids, .y = y}, test::test_stream());
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(y.at(i)), i >= 3);
  const HostArray rows = HostArray::full(Shape{2, 3}, DType::f32, 1.0);
  HostArray scattered = table;
  scatter_rows({.x = rows, .ids = ids, .y = scattered}, test::test_stream());
  HostArray added = table;
  scatter_add_rows({.x = rows, .ids = ids, .y = added, .workspace = workspace_for(2)},
                   test::test_stream());
  for (int64_t i = 0; i < 15; ++i) {
    EXPECT_EQ(scattered.at(i), i / 3 == 1 ? 1.0 : 2.0);
    EXPECT_EQ(added.at(i), i / 3 == 1 ? 3.0 : 2.0);
  }
}

TEST(GatherRows, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{5, 3}, DType::f32);
  HostArray y(Shape{2, 3}, DType::f32);
  const HostArray ids = HostArray::of({1, 9}, Shape{2}, DType::i32);
  if (!test::runs_on_cuda()) expect_bad_id_is_named(x, ids, y);
  EXPECT_THAT(test::message_of_invalid([&] {
                gather_rows({.x = x, .ids = ids, .y = HostArray(Shape{3, 3}, DType::f32)},
                            test::test_stream());
              }),
              HasSubstr("ids must be [3]"));
  EXPECT_THAT(test::message_of_invalid([&] {
                gather_rows({.x = x, .ids = ids, .y = HostArray(Shape{2, 3}, DType::bf16)},
                            test::test_stream());
              }),
              HasSubstr("y must be f32"));
  EXPECT_EQ(cost(GatherRows{.x = x, .ids = ids, .y = y}).bytes(), 8 + 24 + 24);
  EXPECT_EQ(cost(ScatterRows{.x = y, .ids = ids, .y = x}).bytes(), 8 + 24 + 24);
  EXPECT_EQ(cost(ScatterAddRows{.x = y, .ids = ids, .y = x, .workspace = x}).bytes(),
            8 + 24 + 24 + 24);
  gather_rows({.x = test::meta_view(Shape{5, 3}, DType::f32),
               .ids = test::meta_view(Shape{2}, DType::i32, 2),
               .y = test::meta_view(Shape{2, 3}, DType::f32, 3)},
              test::test_stream());
}

}  // namespace gather_rows_test
}  // namespace zinc::kernels
