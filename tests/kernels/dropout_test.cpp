#include "kernels/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/binary.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace dropout_test {

using test::HostArray;
using testing::HasSubstr;

constexpr RandomKey kKey = make_random_key(17, Purpose::dropout, 3, 5, 7);

HostArray run(const HostArray& x, double p, int64_t first = 0) {
  HostArray y(x.shape(), x.dtype());
  dropout({.x = x, .y = y, .p = p, .key = kKey, .first_element = first}, test::test_stream());
  return y;
}

TEST(Dropout, EveryDTypeSizeAndStart_IsTheMaskOfTheKey) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const int64_t n : test::kOddSizes) {
      for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{6}, int64_t{1} << 40}) {
        for (const double p : {0.0, 0.1, 0.5, 0.9}) {
          const HostArray x = HostArray::random(Shape{n}, dtype, 1);
          const HostArray y = run(x, p, first);
          for (int64_t i = 0; i < n; ++i) {
            const bool kept = kKey.uniform(static_cast<uint64_t>(first + i)) >= float(p);
            double expected = 0.0;
            if (kept && dtype == DType::f64) {
              expected = x.at(i) * (1.0 / (1.0 - p));
            } else if (kept) {
              expected = static_cast<double>(float(x.at(i)) * float(1.0 / (1.0 - p)));
            }
            ASSERT_EQ(y.at(i), HostArray::of({expected}, Shape{}, dtype).at(0))
                << name_of(dtype) << " " << i << " of " << n << " from " << first;
          }
        }
      }
    }
  }
}

// The kernel uses the counter that a GPU reads when it runs, not the one at the launch.
TEST(Dropout, CounterOnTheDevice_TakesThePlaceOfTheKeys) {
  const HostArray x = HostArray::random(Shape{1000}, DType::bf16, 1);
  const HostArray counter = HostArray::of({12345.0}, Shape{1}, DType::i64);
  const HostArray y(x.shape(), x.dtype());
  const Dropout by_counter{.x = x, .y = y, .p = 0.3, .key = kKey, .counter = counter};
  if (!test::runs_on_cuda()) {
    EXPECT_THAT([&] { dropout(by_counter, test::test_stream()); },
                testing::ThrowsMessage<InvalidArgument>(HasSubstr("is for a GPU")));
    return;
  }
  dropout(by_counter, test::test_stream());
  const HostArray expected(x.shape(), x.dtype());
  dropout({.x = x, .y = expected, .p = 0.3, .key = {.key = kKey.key, .counter_high = 12345}},
          test::test_stream());
  for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(y.at(i), expected.at(i)) << i;
}

TEST(Dropout, ShareOfZeros_IsP) {
  const int64_t n = 100'000;
  const HostArray ones = HostArray::full(Shape{n}, DType::f32, 1.0);
  for (const double p : {0.1, 0.2, 0.5}) {
    const HostArray y = run(ones, p);
    double zeros = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
      zeros += y.at(i) == 0.0 ? 1.0 : 0.0;
      sum += y.at(i);
    }
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(zeros / n, p, 5.0 * std::sqrt(p * (1.0 - p) / n));
    EXPECT_NEAR(sum / n, 1.0, 5.0 * std::sqrt(p / (1.0 - p) / n));
  }
}

TEST(Dropout, EdgeProbabilities) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray x = HostArray::random(Shape{1025}, dtype, 2);
    EXPECT_TRUE(test::same_bits(run(x, 0.0), x));
    EXPECT_TRUE(test::same_bits(run(x, 1.0), HostArray::full(Shape{1025}, dtype, 0.0)));
  }
}

TEST(Dropout, DroppedElement_IsZeroWhateverItWas) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray y = run(HostArray::full(Shape{100}, dtype, nan), 0.5);
    const HostArray z = run(HostArray::full(Shape{100}, dtype, -1.0), 0.5);
    for (int64_t i = 0; i < 100; ++i) {
      const bool kept = kKey.uniform(static_cast<uint64_t>(i)) >= 0.5f;
      EXPECT_EQ(std::isnan(y.at(i)), kept);
      EXPECT_EQ(std::signbit(z.at(i)), kept);
    }
  }
}

TEST(Dropout, PartsOfAnArray_HaveTheMaskOfTheWhole) {
  const HostArray x = HostArray::random(Shape{1000}, DType::bf16, 3);
  const HostArray whole = run(x, 0.3);
  HostArray parts(Shape{1000}, DType::bf16);
  for (int64_t begin = 0; begin < 1000; begin += 77) {
    const int64_t length = std::min<int64_t>(77, 1000 - begin);
    dropout({.x = x.view().narrow(0, begin, length),
             .y = parts.view().narrow(0, begin, length),
             .p = 0.3,
             .key = kKey,
             .first_element = begin},
            test::test_stream());
  }
  EXPECT_TRUE(test::same_bits(parts, whole));
}

TEST(Dropout, Backward_IsTheSameCallOnTheGradient) {
  const HostArray x = HostArray::random(Shape{999}, DType::f32, 4, 0.5, 1.0);
  const HostArray dy = HostArray::random(Shape{999}, DType::f32, 5, 0.5, 1.0);
  const HostArray y = run(x, 0.4);
  const HostArray dx = run(dy, 0.4);
  const float factor = float(1.0 / 0.6);
  for (int64_t i = 0; i < 999; ++i) {
    // y = m * x is linear: its slope at every element is the factor or 0, as the gradient's.
    ASSERT_EQ(y.at(i) == 0.0, dx.at(i) == 0.0);
    ASSERT_EQ(dx.at(i), y.at(i) == 0.0 ? 0.0 : double(float(dy.at(i)) * factor));
  }
}

TEST(DropoutResidual, EqualsTheCompositionBitForBit) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const int64_t n : test::kOddSizes) {
      const HostArray x = HostArray::random(Shape{n}, dtype, 6);
      const HostArray residual = HostArray::random(Shape{n}, dtype, 7);
      HostArray y(Shape{n}, dtype);
      // A factor of 2 keeps the product exact, so that rounding once or twice is the same.
      dropout_residual({.x = x, .residual = residual, .y = y, .p = 0.5, .key = kKey},
                       test::test_stream());
      HostArray expected(Shape{n}, dtype);
      binary({.op = BinaryOp::add, .a = residual, .b = run(x, 0.5), .y = expected},
             test::test_stream());
      ASSERT_TRUE(test::same_bits(y, expected)) << name_of(dtype) << n;
      for (const bool over_x : {true, false}) {
        HostArray inout = over_x ? x : residual;
        dropout_residual({.x = over_x ? inout : x,
                          .residual = over_x ? residual : inout,
                          .y = inout,
                          .p = 0.5,
                          .key = kKey},
                         test::test_stream());
        ASSERT_TRUE(test::same_bits(inout, expected));
      }
    }
  }
}

TEST(Dropout, LongArray_SameBitsForAllThreadCounts) {
  const HostArray x = HostArray::random(Shape{50'001}, DType::bf16, 8);
  EXPECT_TRUE(
      test::same_for_all_thread_counts([&] { return std::vector<HostArray>{run(x, 0.1, 3)}; }));
}

TEST(Dropout, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{8}, DType::f32);
  const auto message = [&](const Dropout& args) {
    return test::message_of_invalid([&] { dropout(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = x, .y = x, .p = 1.5, .key = kKey}), HasSubstr("p must be in [0, 1]"));
  EXPECT_THAT(message({.x = x, .y = x, .p = std::nan(""), .key = kKey}), HasSubstr("p must be"));
  EXPECT_THAT(message({.x = HostArray::strided(Shape{2, 4}, DType::f32, 1),
                       .y = HostArray(Shape{2, 4}, DType::f32),
                       .key = kKey}),
              HasSubstr("must be contiguous"));
  EXPECT_EQ(cost(Dropout{.x = x, .y = x, .key = kKey}).bytes(), 64);
  EXPECT_EQ(cost(DropoutResidual{.x = x, .residual = x, .y = x, .key = kKey}).bytes(), 96);
  const View nowhere = test::meta_view(Shape{8}, DType::f32);
  dropout({.x = nowhere, .y = nowhere, .key = kKey}, test::test_stream());
}

}  // namespace dropout_test
}  // namespace zinc::kernels
