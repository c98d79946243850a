#include "kernels/swiglu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/binary.h"
#include "kernels/unary.h"
#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace swiglu_test {

using test::HostArray;
using testing::HasSubstr;

HostArray forward(const HostArray& gate, const HostArray& up) {
  const test::DeviceScope scope(test::device_for(gate.dtype()));
  HostArray y(gate.shape(), gate.dtype());
  swiglu_forward({.gate = gate, .up = up, .y = y}, test::test_stream());
  return y;
}

struct Gradients {
  HostArray gate;
  HostArray up;
};

Gradients backward(const HostArray& dy, const HostArray& gate, const HostArray& up) {
  const test::DeviceScope scope(test::device_for(gate.dtype()));
  Gradients d{HostArray(gate.shape(), gate.dtype()), HostArray(gate.shape(), gate.dtype())};
  swiglu_backward({.dy = dy, .gate = gate, .up = up, .dgate = d.gate, .dup = d.up},
                  test::test_stream());
  return d;
}

TEST(SwiGlu, F64_IsSiluTimesUp) {
  const test::DeviceScope scope(kCpu);
  const HostArray gate = HostArray::random(Shape{7, 19}, DType::f64, 1, -5.0, 5.0);
  const HostArray up = HostArray::random(gate.shape(), DType::f64, 2);
  HostArray silu(gate.shape(), DType::f64);
  unary({.op = UnaryOp::silu, .x = gate, .y = silu}, test::test_stream());
  HostArray expected(gate.shape(), DType::f64);
  binary({.op = BinaryOp::mul, .a = silu, .b = up, .y = expected}, test::test_stream());
  EXPECT_LE(test::max_relative_error(forward(gate, up), expected, 0.0), 4 * 0x1p-53);
}

TEST(SwiGlu, ShortFloats_AreTheF64ValueOfTheRoundedArguments) {
  for (const DType dtype : test::kShortFloatDTypes) {
    for (const int64_t n : test::kOddSizes) {
      const HostArray gate = HostArray::random(Shape{n}, dtype, 3, -8.0, 8.0);
      const HostArray up = HostArray::random(Shape{n}, dtype, 4);
      const HostArray dy = HostArray::random(Shape{n}, dtype, 5);
      // One rounding to the dtype; exp, sigmoid and two products in f32 are within 6 ulp.
      const double tolerance = test::epsilon_of(dtype) + 6 * 0x1p-23;
      ASSERT_LE(
          test::relative_l2(forward(gate, up), forward(gate.as(DType::f64), up.as(DType::f64))),
          tolerance);
      const Gradients got = backward(dy, gate, up);
      const Gradients expected =
          backward(dy.as(DType::f64), gate.as(DType::f64), up.as(DType::f64));
      ASSERT_LE(test::relative_l2(got.gate, expected.gate), tolerance);
      ASSERT_LE(test::relative_l2(got.up, expected.up), tolerance);
    }
  }
}

TEST(SwiGluBackward, F64_MatchesCentralDifferences) {
  const HostArray gate = HostArray::random(Shape{4, 9}, DType::f64, 6, -4.0, 4.0);
  const HostArray up = HostArray::random(gate.shape(), DType::f64, 7);
  const HostArray dy = HostArray::random(gate.shape(), DType::f64, 8);
  const Gradients got = backward(dy, gate, up);
  EXPECT_LE(test::relative_l2(got.gate,
                              test::numeric_gradient(
                                  gate, dy, [&](const HostArray& at) { return forward(at, up); })),
            test::kGradientTolerance);
  EXPECT_LE(test::relative_l2(got.up,
                              test::numeric_gradient(
                                  up, dy, [&](const HostArray& at) { return forward(gate, at); })),
            test::kGradientTolerance);
}

TEST(SwiGlu, HalvesOfOneBuffer_SameBitsAsTwoArrays) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const HostArray both = HostArray::random(Shape{2, 33, 2 * 70}, dtype, 9, -3.0, 3.0);
    const View left = both.view().narrow(-1, 0, 70);
    const View right = both.view().narrow(-1, 70, 70);
    HostArray gate(Shape{2, 33, 70}, dtype);
    HostArray up(Shape{2, 33, 70}, dtype);
    for (int64_t i = 0; i < gate.numel(); ++i) {
      gate.set(i, both.at(i / 70 * 140 + i % 70));
      up.set(i, both.at(i / 70 * 140 + 70 + i % 70));
    }
    HostArray y(gate.shape(), dtype);
    swiglu_forward({.gate = left, .up = right, .y = y}, test::test_stream());
    EXPECT_TRUE(test::same_bits(y, forward(gate, up)));

    // Gradients in the place of the halves.
    const HostArray dy = HostArray::random(gate.shape(), dtype, 10);
    const Gradients expected = backward(dy, gate, up);
    HostArray inout = both;
    const View dgate = inout.view().narrow(-1, 0, 70);
    const View dup = inout.view().narrow(-1, 70, 70);
    swiglu_backward({.dy = dy, .gate = dgate, .up = dup, .dgate = dgate, .dup = dup},
                    test::test_stream());
    for (int64_t i = 0; i < gate.numel(); ++i) {
      ASSERT_EQ(inout.at(i / 70 * 140 + i % 70), expected.gate.at(i));
      ASSERT_EQ(inout.at(i / 70 * 140 + 70 + i % 70), expected.up.at(i));
    }
  }
}

TEST(SwiGlu, LongArray_SameBitsForAllThreadCounts) {
  const HostArray gate = HostArray::random(Shape{90'001}, DType::bf16, 11);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    const Gradients d = backward(gate, gate, gate);
    return std::vector<HostArray>{forward(gate, gate), d.gate, d.up};
  }));
}

TEST(SwiGlu, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{8}, DType::f32);
  HostArray y(Shape{8}, DType::f32);
  HostArray other(Shape{7}, DType::f32);
  EXPECT_THAT(test::message_of_invalid(
                  [&] { swiglu_forward({.gate = x, .up = other, .y = y}, test::test_stream()); }),
              HasSubstr("up must have shape [8]"));
  EXPECT_THAT(test::message_of_invalid([&] {
                swiglu_backward({.dy = x, .gate = x, .up = x, .dgate = y, .dup = y},
                                test::test_stream());
              }),
              HasSubstr("must not be the same"));
  EXPECT_EQ(cost(SwiGluForward{.gate = x, .up = x, .y = y}).bytes(), 96);
  EXPECT_EQ(cost(SwiGluBackward{.dy = x, .gate = x, .up = x, .dgate = x, .dup = y}).bytes(), 160);
  const Device meta{.kind = DeviceKind::cpu, .index = 0, .meta = true};
  const View nowhere(reinterpret_cast<void*>(64), DType::f32, Shape{1000}, meta);
  const View there(reinterpret_cast<void*>(65536), DType::f32, Shape{1000}, meta);
  swiglu_forward({.gate = nowhere, .up = nowhere, .y = nowhere}, test::test_stream());
  swiglu_backward({.dy = nowhere, .gate = nowhere, .up = nowhere, .dgate = nowhere, .dup = there},
                  test::test_stream());
}

}  // namespace swiglu_test
}  // namespace zinc::kernels
