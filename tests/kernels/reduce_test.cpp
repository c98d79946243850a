#include "kernels/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace reduce_test {

using test::HostArray;
using testing::HasSubstr;

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::mean, ReduceOp::max};
constexpr ReduceOver kOvers[] = {ReduceOver::last, ReduceOver::leading, ReduceOver::all};

Shape reduced(ReduceOver over, const Shape& shape) {
  if (over == ReduceOver::leading) return Shape{shape.cols()};
  Shape result;
  for (int i = 0; over == ReduceOver::last && i + 1 < shape.rank(); ++i) result.push_back(shape[i]);
  return result;
}

HostArray forward(ReduceOp op, ReduceOver over, const HostArray& x, DType out) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  HostArray y(reduced(over, x.shape()), out);
  reduce({.op = op, .over = over, .x = x, .y = y}, test::test_stream());
  return y;
}

HostArray backward(ReduceOp op, ReduceOver over, const HostArray& x, const HostArray& dy) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  HostArray dx(x.shape(), x.dtype());
  reduce_backward({.op = op, .over = over, .dy = dy, .x = x, .dx = dx}, test::test_stream());
  return dx;
}

// Note [Order of sums], read literally, over the values of one row or one column.
template <class T>
T tree(std::vector<T> leaf) {
  for (size_t width = 1; width < leaf.size(); width *= 2) {
    for (size_t r = 0; r + width < leaf.size(); r += 2 * width) leaf[r] = leaf[r] + leaf[r + width];
  }
  return leaf.empty() ? T(0) : leaf[0];
}

template <class T>
T row_sum(const std::vector<T>& x) {
  std::vector<T> blocks;
  for (size_t begin = 0; begin < x.size(); begin += 1024) {
    std::vector<T> lane(16, T(0));
    for (size_t i = begin; i < std::min(x.size(), begin + 1024); ++i) lane[i % 16] += x[i];
    for (size_t width = 8; width > 0; width /= 2) {
      for (size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
    }
    blocks.push_back(lane[0]);
  }
  return tree(blocks);
}

template <class T>
T column_sum(const std::vector<T>& x) {
  std::vector<T> blocks;
  for (size_t begin = 0; begin < x.size(); begin += 64) {
    T sum = x[begin];
    for (size_t i = begin + 1; i < std::min(x.size(), begin + 64); ++i) sum += x[i];
    blocks.push_back(sum);
  }
  return tree(blocks);
}

template <class T>
HostArray expected_sums(const HostArray& x, ReduceOver over, bool mean, DType out) {
  const int64_t rows = over == ReduceOver::all ? 1 : x.shape().rows();
  const int64_t cols = over == ReduceOver::all ? x.numel() : x.shape().cols();
  HostArray y(reduced(over, x.shape()), out);
  const bool leading = over == ReduceOver::leading;
  for (int64_t i = 0; i < y.numel(); ++i) {
    std::vector<T> values;
    for (int64_t k = 0; k < (leading ? rows : cols); ++k) {
      values.push_back(static_cast<T>(x.at(leading ? k * cols + i : i * cols + k)));
    }
    T sum = leading ? column_sum(values) : row_sum(values);
    if (mean) sum = sum / static_cast<T>(values.size());
    y.set(i, static_cast<double>(sum));
  }
  return y;
}

TEST(Reduce, SumAndMean_FollowTheStatedOrderBitForBit) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const ReduceOver over : kOvers) {
      for (const Shape& shape :
           {Shape{1, 1}, Shape{3, 17}, Shape{2, 2, 1025}, Shape{129, 3}, Shape{1, 140'000},
            Shape{1000, 65}, Shape{4200, 3}, Shape{7, 0}, Shape{0, 7}}) {
        for (const bool mean : {false, true}) {
          if (mean && shape.numel() == 0) continue;
          // On CUDA the 16-bit dtypes have one kernel; the mean is a quotient at the end.
          if (test::runs_on_cuda() && shape.numel() > 5000 && (mean || dtype == DType::f16))
            continue;
          const HostArray x = HostArray::random(shape, dtype, 1);
          for (const DType out : {dtype, DType::f32}) {
            if (dtype == DType::f64 && out != dtype) continue;
            const HostArray y = forward(mean ? ReduceOp::mean : ReduceOp::sum, over, x, out);
            const HostArray expected = dtype == DType::f64
                                           ? expected_sums<double>(x, over, mean, out)
                                           : expected_sums<float>(x, over, mean, out);
            ASSERT_TRUE(test::same_bits(y, expected))
                << name_of(dtype) << " " << to_string(shape) << " over " << static_cast<int>(over);
          }
        }
      }
    }
  }
}

TEST(Reduce, MeanOfNothing_IsNaN) {
  const HostArray x(Shape{0, 3}, DType::f32);
  EXPECT_TRUE(std::isnan(forward(ReduceOp::mean, ReduceOver::leading, x, DType::f32).at(1)));
}

TEST(Reduce, Maximum_FindsItAnywhereAndKeepsNaN) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const ReduceOver over : kOvers) {
      for (const Shape& shape : {Shape{1, 1}, Shape{3, 17}, Shape{70, 131}, Shape{2, 1025}}) {
        const HostArray x = HostArray::random(shape, dtype, 2, -3.0, -1.0);
        const HostArray y = forward(ReduceOp::max, over, x, dtype);
        std::vector<double> best(static_cast<size_t>(y.numel()), -1e30);
        for (int64_t i = 0; i < x.numel(); ++i) {
          const int64_t k = over == ReduceOver::all       ? 0
                            : over == ReduceOver::leading ? i % shape.cols()
                                                          : i / shape.cols();
          best[static_cast<size_t>(k)] = std::max(best[static_cast<size_t>(k)], x.at(i));
        }
        ASSERT_EQ(y.values(), best);
        for (const int64_t place : {int64_t{0}, x.numel() / 2, x.numel() - 1}) {
          HostArray poisoned = x;
          poisoned.set(place, std::numeric_limits<double>::quiet_NaN());
          const HostArray z = forward(ReduceOp::max, over, poisoned, dtype);
          int64_t count = 0;
          for (int64_t i = 0; i < z.numel(); ++i) count += std::isnan(z.at(i)) ? 1 : 0;
          ASSERT_EQ(count, 1) << name_of(dtype) << " at " << place;
        }
      }
    }
  }
}

TEST(Reduce, Accumulate_AddsBeforeRounding) {
  const HostArray x = HostArray::full(Shape{200, 3}, DType::bf16, 1.0);
  HostArray y = HostArray::full(Shape{3}, DType::bf16, 56.0);
  reduce({.op = ReduceOp::sum, .over = ReduceOver::leading, .x = x, .y = y, .accumulate = true},
         test::test_stream());
  for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(y.at(j), 256.0);
}

TEST(Reduce, RowsAtAStride_SameBitsAsContiguous) {
  for (const ReduceOp op : kOps) {
    for (const ReduceOver over : {ReduceOver::last, ReduceOver::leading}) {
      const HostArray x = HostArray::random(Shape{5, 7, 70}, DType::bf16, 3);
      EXPECT_TRUE(test::same_bits(forward(op, over, x.with_padding(3), DType::bf16),
                                  forward(op, over, x, DType::bf16)));
    }
  }
}

TEST(ReduceBackward, F64_MatchesCentralDifferences) {
  for (const ReduceOp op : kOps) {
    for (const ReduceOver over : kOvers) {
      const HostArray x = HostArray::random(Shape{2, 3, 9}, DType::f64, 4);
      const HostArray dy = HostArray::random(reduced(over, x.shape()), DType::f64, 5);
      const HostArray numeric = test::numeric_gradient(
          x, dy, [&](const HostArray& at) { return forward(op, over, at, DType::f64); });
      EXPECT_LE(test::relative_l2(backward(op, over, x, dy), numeric), test::kGradientTolerance)
          << name_of(op) << static_cast<int>(over);
    }
  }
}

TEST(ReduceBackward, ShortFloats_AreTheRoundedF64Result) {
  for (const ReduceOp op : kOps) {
    for (const ReduceOver over : kOvers) {
      for (const DType dtype : test::kShortFloatDTypes) {
        const HostArray x = HostArray::random(Shape{33, 70}, dtype, 6);
        for (const DType gradient : {dtype, DType::f32}) {
          const HostArray dy = HostArray::random(reduced(over, x.shape()), gradient, 7);
          HostArray dx = HostArray::strided(x.shape(), dtype, over == ReduceOver::all ? 0 : 2);
          reduce_backward({.op = op, .over = over, .dy = dy, .x = x, .dx = dx},
                          test::test_stream());
          const HostArray expected =
              backward(op, over, x.as(DType::f64), dy.as(DType::f64)).as(dtype);
          // A quotient rounded to f32 first may round to the other neighbour of a tie.
          EXPECT_LE(test::max_relative_error(dx, expected, 0.0),
                    op == ReduceOp::mean ? 2 * test::epsilon_of(dtype) : 0.0);
        }
      }
    }
  }
}

TEST(ReduceBackward, EqualMaxima_GradientGoesToTheFirst) {
  const HostArray x = HostArray::of({1, 5, 5, 0, 5, 5}, Shape{2, 3}, DType::f32);
  const HostArray rows = HostArray::of({10, 20}, Shape{2}, DType::f32);
  EXPECT_EQ(backward(ReduceOp::max, ReduceOver::last, x, rows).values(),
            (std::vector<double>{0, 10, 0, 0, 20, 0}));
  const HostArray cols = HostArray::of({10, 20, 30}, Shape{3}, DType::f32);
  EXPECT_EQ(backward(ReduceOp::max, ReduceOver::leading, x, cols).values(),
            (std::vector<double>{10, 20, 30, 0, 0, 0}));
  const HostArray one = HostArray::of({7}, Shape{}, DType::f32);
  EXPECT_EQ(backward(ReduceOp::max, ReduceOver::all, x, one).values(),
            (std::vector<double>{0, 7, 0, 0, 0, 0}));
}

// More rows than a grid has blocks, each longer than a warp's part.
TEST(ReduceBackward, MaximaOfManyRows_EachFindItsPlace) {
  const int64_t rows = 4500, cols = 140;
  HostArray x = HostArray::full(Shape{rows, cols}, DType::f32, 1.0);
  const auto place = [=](int64_t r) { return r * 37 % cols; };
  for (int64_t r = 0; r < rows; ++r) x.set(r * cols + place(r), 2.0);
  const HostArray dx =
      backward(ReduceOp::max, ReduceOver::last, x, HostArray::full(Shape{rows}, DType::f32, 3.0));
  for (int64_t i = 0; i < dx.numel(); ++i) {
    ASSERT_EQ(dx.at(i), i % cols == place(i / cols) ? 3.0 : 0.0);
  }
}

TEST(Reduce, LargeArray_SameBitsForAllThreadCounts) {
  const HostArray x =
      HostArray::random(test::runs_on_cuda() ? Shape{300, 130} : Shape{1100, 300}, DType::f32, 8);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    std::vector<HostArray> results;
    for (const ReduceOp op : kOps) {
      for (const ReduceOver over : kOvers) results.push_back(forward(op, over, x, DType::f32));
    }
    return results;
  }));
}

TEST(Reduce, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{4, 8}, DType::bf16);
  HostArray y(Shape{8}, DType::bf16);
  const auto message = [&](const Reduce& args) {
    return test::message_of_invalid([&] { reduce(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = x, .y = y}), HasSubstr("y must have shape [4], not [8]"));
  EXPECT_THAT(message({.over = ReduceOver::leading, .x = x, .y = HostArray(Shape{8}, DType::f16)}),
              HasSubstr("y must be bf16 or f32, not f16"));
  EXPECT_THAT(message({.op = ReduceOp::max,
                       .over = ReduceOver::leading,
                       .x = HostArray(Shape{0, 8}, DType::bf16),
                       .y = y}),
              HasSubstr("no maximum of no elements"));
  EXPECT_THAT(message({.over = ReduceOver::all,
                       .x = HostArray::strided(Shape{4, 8}, DType::bf16, 1),
                       .y = HostArray(Shape{1}, DType::f32)}),
              HasSubstr("must be contiguous"));
  EXPECT_EQ(cost(Reduce{.over = ReduceOver::leading, .x = x, .y = y}).bytes(), 64 + 16);
  reduce({.x = test::meta_view(Shape{4, 8}, DType::f32),
          .y = test::meta_view(Shape{4}, DType::f32, 2)},
         test::test_stream());
}

}  // namespace reduce_test
}  // namespace zinc::kernels
