#include "kernels/softmax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace softmax_test {

using ::testing::HasSubstr;
using ::testing::ValuesIn;
using namespace zinc::test;

// Round the edges of lanes and of the block of 2048 columns.
constexpr int64_t kColumns[] = {1, 3, 16, 17, 100, 2047, 2048, 2049, 5000};

class SoftmaxOf : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, SoftmaxOf, ValuesIn(kFloatDTypes),
                         [](const auto& test) { return to_string(test.param); });

HostArray softmax_naively(const HostArray& x) {
  HostArray y(x.shape(), DType::f64);
  const int64_t n = x.shape().cols();
  for (int64_t r = 0; r < x.shape().rows(); ++r) {
    double sum = 0.0;
    for (int64_t c = 0; c < n; ++c) sum += std::exp(x.at(r * n + c));
    for (int64_t c = 0; c < n; ++c) y.set(r * n + c, std::exp(x.at(r * n + c)) / sum);
  }
  return y;
}

// Every value: two roundings of the argument's size (|x - max| <= 10, half an epsilon each), the
// exponential (2), the sum (terms of one sign: at most log2 of the lanes' share) and the quotient.
double tolerance(DType dtype, int64_t n) {
  const double accumulator = epsilon_of(dtype == DType::f64 ? DType::f64 : DType::f32);
  return epsilon_of(dtype) + accumulator * (24 + std::sqrt(static_cast<double>(n)));
}

TEST_P(SoftmaxOf, Forward_MatchesDefinition) {
  const DType dtype = GetParam();
  const DeviceScope scope(device_for(dtype));
  for (const int64_t n : kColumns) {
    const HostArray x = HostArray::random({3, n}, dtype, 1, -5, 5);
    HostArray y({3, n}, dtype);
    softmax_forward({.x = x, .y = y}, test_stream());
    const double floor = dtype == DType::f16 ? 0x1p-14 : 1e-30;
    EXPECT_LE(max_relative_error(y, softmax_naively(x), floor), tolerance(dtype, n)) << n;
  }
}

TEST_P(SoftmaxOf, InPlace_GivesTheSameBits) {
  const DType dtype = GetParam();
  const DeviceScope scope(device_for(dtype));
  for (const int64_t n : kColumns) {
    HostArray x = HostArray::random({4, n}, dtype, 2, -5, 5), y({4, n}, dtype);
    softmax_forward({.x = x, .y = y}, test_stream());
    softmax_forward({.x = x, .y = x}, test_stream());
    EXPECT_TRUE(same_bits(x, y)) << n;
  }
}

TEST_P(SoftmaxOf, LargeAndInfiniteValues_AreHandled) {
  const DType dtype = GetParam();
  const DeviceScope scope(device_for(dtype));
  HostArray x = HostArray::full({4, 3000}, dtype, -INFINITY), y({4, 3000}, dtype);
  x.set(2500, 60000.0);  // row 0: one finite value, in the second block
  for (int64_t c = 0; c < 3000; ++c) x.set(3000 + c, 60000.0);  // row 1: all equal
  x.set(2 * 3000 + 5, NAN);                                     // row 2; row 3 is all -infinity
  softmax_forward({.x = x, .y = y}, test_stream());
  EXPECT_EQ(y.at(2500), 1.0);
  EXPECT_EQ(y.at(0), 0.0);
  EXPECT_NEAR(y.at(3000 + 7), 1.0 / 3000, 1.0 / 3000 * tolerance(dtype, 3000));
  EXPECT_TRUE(std::isnan(y.at(2 * 3000)));
  EXPECT_TRUE(std::isnan(y.at(3 * 3000)));
}

TEST_P(SoftmaxOf, ALongRowThatBeginsWithInfinities_IsThatOfItsRest) {
  const DType dtype = GetParam();
  const DeviceScope scope(device_for(dtype));
  constexpr int64_t kLong = 5000;  // blocks of -infinity, then values far below zero
  HostArray x = HostArray::full({2, kLong}, dtype, -INFINITY), y({2, kLong}, dtype);
  for (int64_t c = 4500; c < kLong; ++c) x.set(c, -200.0);
  x.set(kLong + 10, -200.0);
  softmax_forward({.x = x, .y = y}, test_stream());
  EXPECT_EQ(y.at(0), 0.0);
  EXPECT_EQ(y.at(4499), 0.0);
  EXPECT_NEAR(y.at(4500), 1.0 / 500, 1.0 / 500 * tolerance(dtype, 500));
  EXPECT_EQ(y.at(kLong + 10), 1.0);
  EXPECT_EQ(y.at(2 * kLong - 1), 0.0);
}

// The gradient of <w, softmax(x)> against central differences (f64), and against f64 (the others).
TEST_P(SoftmaxOf, Backward_MatchesDifferences) {
  const DType dtype = GetParam();
  const DeviceScope scope(device_for(dtype));
  for (const int64_t n : kColumns) {
    if (dtype == DType::f64 && n > 100) continue;
    const HostArray x = HostArray::random({2, n}, DType::f64, 3, -2, 2);
    const HostArray w = HostArray::random({2, n}, dtype, 4);
    HostArray y64({2, n}, DType::f64), dx({2, n}, dtype);
    {
      const DeviceScope oracle(kCpu);
      softmax_forward({.x = x, .y = y64}, test_stream());
    }
    const HostArray y = y64.as(dtype);
    softmax_backward({.dy = w, .y = y, .dx = dx}, test_stream());
    if (dtype != DType::f64) {
      const DeviceScope oracle(kCpu);
      HostArray expected({2, n}, DType::f64);
      const HostArray w64 = w.as(DType::f64), rounded_y = y.as(DType::f64);
      softmax_backward({.dy = w64, .y = rounded_y, .dx = expected}, test_stream());
      double size = 0.0, off = 0.0;
      for (int64_t i = 0; i < dx.numel(); ++i) {
        // dy - dot cancels: errors are relative to y * (|dy| + |dot|).
        size += std::pow(y.at(i) * (std::abs(w.at(i)) + 1.0), 2);
        off += std::pow(dx.at(i) - expected.at(i), 2);
      }
      EXPECT_LE(std::sqrt(off), tolerance(dtype, n) * std::sqrt(size)) << n;
      continue;
    }
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double h = 1e-5;
      const auto loss = [&](double shift) {
        HostArray moved = x, out = x;
        moved.set(i, x.at(i) + shift);
        softmax_forward({.x = moved, .y = out}, test_stream());
        double sum = 0.0;
        for (int64_t k = 0; k < out.numel(); ++k) sum += w.at(k) * out.at(k);
        return sum;
      };
      EXPECT_NEAR(dx.at(i), (loss(h) - loss(-h)) / (2 * h), 1e-9);
    }
  }
}

TEST_P(SoftmaxOf, Bits_DoNotDependOnThreads) {
  const DType dtype = GetParam();
  const DeviceScope scope(device_for(dtype));
  EXPECT_TRUE(same_for_all_thread_counts([&] {
    const HostArray x = HostArray::random({70, 1025}, dtype, 5, -5, 5);
    HostArray y(x.shape(), dtype), dx(x.shape(), dtype);
    softmax_forward({.x = x, .y = y}, test_stream());
    softmax_backward({.dy = x, .y = y, .dx = dx}, test_stream());
    return std::vector<HostArray>{y, dx};
  }));
}

TEST_P(SoftmaxOf, EmptyArrays_DoNothing) {
  HostArray none({0, 5}, GetParam()), no_columns({5, 0}, GetParam());
  softmax_forward({.x = none, .y = none}, test_stream());
  softmax_forward({.x = no_columns, .y = no_columns}, test_stream());
  softmax_backward({.dy = none, .y = none, .dx = none}, test_stream());
}

TEST(Softmax, WrongArguments_AreNamed) {
  const HostArray x({4, 6}, DType::f32), ids({4, 6}, DType::i32);
  HostArray y({4, 5}, DType::f32), half({4, 6}, DType::bf16);
  EXPECT_THAT(message_of_invalid([&] { softmax_forward({.x = x, .y = y}, test_stream()); }),
              HasSubstr("softmax: y must have shape [4, 6]"));
  EXPECT_THAT(message_of_invalid([&] { softmax_forward({.x = x, .y = half}, test_stream()); }),
              HasSubstr("y must be f32"));
  EXPECT_THAT(message_of_invalid([&] { softmax_forward({.x = ids, .y = y}, test_stream()); }),
              HasSubstr("x must be f64, f32, bf16 or f16"));
  EXPECT_THAT(
      message_of_invalid([&] { softmax_backward({.dy = x, .y = x, .dx = {}}, test_stream()); }),
      HasSubstr("dx is missing"));
  HostArray padded = HostArray::strided({4, 6}, DType::f32, 2);
  EXPECT_THAT(
      message_of_invalid([&] { softmax_forward({.x = padded, .y = padded}, test_stream()); }),
      HasSubstr("x of shape [4, 6] must be contiguous"));
}

TEST(Softmax, Cost_IsOneReadAndOneWrite) {
  HostArray x({4, 6}, DType::bf16);
  EXPECT_EQ(cost(SoftmaxForward{.x = x, .y = x}).bytes(), 2 * 48);
  EXPECT_EQ(cost(SoftmaxBackward{.dy = x, .y = x, .dx = x}).bytes(), 3 * 48);
}

}  // namespace softmax_test
}  // namespace zinc::kernels
