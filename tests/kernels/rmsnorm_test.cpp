#include "kernels/rmsnorm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/layernorm.h"
#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace rmsnorm_test {

using test::HostArray;
using testing::HasSubstr;

constexpr double kEps = 1e-5;

DType statistic_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

struct Inputs {
  HostArray x, gamma, dy;
};

Inputs make_inputs(int64_t rows, int64_t cols, DType dtype) {
  return {HostArray::random(Shape{rows, cols}, dtype, 1, -2.0, 3.0),
          HostArray::random(Shape{cols}, dtype, 2, 0.5, 1.5),
          HostArray::random(Shape{rows, cols}, dtype, 3)};
}

struct Result {
  HostArray y, rstd;
};

Result forward(const HostArray& x, const HostArray& gamma) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  Result r{HostArray(x.shape(), x.dtype()),
           HostArray(Shape{x.shape().rows()}, statistic_of(x.dtype()))};
  rmsnorm_forward({.x = x, .gamma = gamma, .y = r.y, .rstd = r.rstd, .eps = kEps},
                  test::test_stream());
  return r;
}

struct Gradients {
  HostArray dx, dgamma;
};

HostArray workspace_for(const HostArray& x) {
  return HostArray(Shape{norm_backward_workspace_bytes(x.shape().rows(), x.shape().cols(),
                                                       x.dtype(), x.view().device().kind)},
                   DType::u8);
}

Gradients backward(const Inputs& in, const Result& saved, DType sums) {
  const test::DeviceScope scope(test::device_for(in.x.dtype()));
  Gradients d{HostArray(in.x.shape(), in.x.dtype()), HostArray(Shape{in.x.shape().cols()}, sums)};
  const HostArray workspace = workspace_for(in.x);
  rmsnorm_backward({.dy = in.dy,
                    .x = in.x,
                    .gamma = in.gamma,
                    .rstd = saved.rstd,
                    .dx = d.dx,
                    .dgamma = d.dgamma,
                    .workspace = workspace},
                   test::test_stream());
  return d;
}

TEST(RmsNorm, F64_FollowsTheFormula) {
  for (const int64_t cols : {1, 3, 17, 1023, 1025}) {
    const Inputs in = make_inputs(3, cols, DType::f64);
    const Result r = forward(in.x, in.gamma);
    for (int64_t row = 0; row < 3; ++row) {
      double squares = 0.0;
      for (int64_t c = 0; c < cols; ++c) squares += std::pow(in.x.at(row * cols + c), 2);
      const double rstd = 1.0 / std::sqrt(squares / double(cols) + kEps);
      ASSERT_NEAR(r.rstd.at(row), rstd, 1e-13 * rstd);
      for (int64_t c = 0; c < cols; ++c) {
        const double expected = in.x.at(row * cols + c) * rstd * in.gamma.at(c);
        ASSERT_NEAR(r.y.at(row * cols + c), expected, 1e-12);
      }
    }
  }
}

TEST(RmsNorm, ShortFloats_AreTheF64ResultOfTheRoundedArguments) {
  for (const DType dtype : test::kShortFloatDTypes) {
    for (const int64_t cols : {1, 3, 17, 96, 768, 1023, 1025, 4096, 16500}) {
      const Inputs in = make_inputs(5, cols, dtype);
      const Result got = forward(in.x, in.gamma);
      const Result expected = forward(in.x.as(DType::f64), in.gamma.as(DType::f64));
      // A sum of positive terms in 16 lanes, and four roundings.
      const double in_f32 = (4 + std::sqrt(double(cols) / 16.0)) * 0x1p-23;
      EXPECT_LE(test::relative_l2(got.y, expected.y), test::epsilon_of(dtype) + in_f32);
      EXPECT_LE(test::max_relative_error(got.rstd, expected.rstd, 0.0), in_f32);
    }
  }
}

TEST(RmsNormBackward, F64_MatchesCentralDifferences) {
  const Inputs in = make_inputs(4, 19, DType::f64);
  const Gradients d = backward(in, forward(in.x, in.gamma), DType::f64);
  EXPECT_LE(test::relative_l2(d.dx, test::numeric_gradient(in.x, in.dy,
                                                           [&](const HostArray& at) {
                                                             return forward(at, in.gamma).y;
                                                           })),
            test::kGradientTolerance);
  EXPECT_LE(test::relative_l2(d.dgamma, test::numeric_gradient(in.gamma, in.dy,
                                                               [&](const HostArray& at) {
                                                                 return forward(in.x, at).y;
                                                               })),
            test::kGradientTolerance);
}

TEST(RmsNormBackward, ShortFloats_AreTheF64ResultOfTheRoundedArguments) {
  for (const DType dtype : test::kShortFloatDTypes) {
    // On a GPU the shapes cover a row in a warp, rows one after the other in a block, and a row in
    // more than the registers of a block.
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 17},
                                     {40, 1025},
                                     {700, 96},
                                     {2, 8200},
                                     {3, 16500},
                                     {5, 768},
                                     {7, 1040}}) {
      const Inputs in = make_inputs(rows, cols, dtype);
      const Inputs wide{in.x.as(DType::f64), in.gamma.as(DType::f64), in.dy.as(DType::f64)};
      const Gradients got = backward(in, forward(in.x, in.gamma), dtype);
      const Gradients expected = backward(wide, forward(wide.x, wide.gamma), DType::f64);
      const double in_f32 = (8 + 2 * std::sqrt(double(cols) / 16.0)) * 0x1p-23;
      EXPECT_LE(test::relative_l2(got.dx, expected.dx), test::epsilon_of(dtype) + in_f32);
      // Sums over rows in runs of at most 32 and blocks: a random walk of f32 roundings.
      EXPECT_LE(test::relative_l2(got.dgamma, expected.dgamma),
                test::epsilon_of(dtype) + in_f32 + 12 * 0x1p-23);
    }
  }
}

TEST(RmsNormBackward, ResidualGradientAndAccumulation) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const Inputs in = make_inputs(40, 70, dtype);
    const Result saved = forward(in.x, in.gamma);
    const DType sums = statistic_of(dtype);
    const Gradients alone = backward(in, saved, sums);
    HostArray inout = HostArray::random(in.x.shape(), dtype, 5);
    const HostArray past = inout;
    HostArray dgamma = HostArray::full(Shape{70}, sums, 2.0);
    const HostArray workspace = workspace_for(in.x);
    rmsnorm_backward({.dy = in.dy,
                      .x = in.x,
                      .gamma = in.gamma,
                      .rstd = saved.rstd,
                      .dresidual = inout,
                      .dx = inout,
                      .dgamma = dgamma,
                      .accumulate_dgamma = true,
                      .workspace = workspace},
                     test::test_stream());
    for (int64_t i = 0; i < past.numel(); ++i) {
      const double sum = past.at(i) + alone.dx.at(i);
      const double rounded = size_of(dtype) > 2 ? 0.0 : std::fabs(alone.dx.at(i));
      ASSERT_NEAR(inout.at(i), sum, test::epsilon_of(dtype) * (std::fabs(sum) + rounded) + 1e-30);
    }
    for (int64_t c = 0; c < 70; ++c) {
      const HostArray sum = HostArray::of({2.0 + alone.dgamma.at(c)}, Shape{}, sums);
      ASSERT_EQ(dgamma.at(c), sum.at(0));
    }
  }
}

TEST(RmsNorm, StridedRowsInPlaceAndWithoutStatistics_SameBits) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const Inputs in = make_inputs(6, 131, dtype);
    const Result expected = forward(in.x, in.gamma);
    HostArray inout = in.x.with_padding(5);
    rmsnorm_forward({.x = inout, .gamma = in.gamma, .y = inout, .eps = kEps}, test::test_stream());
    EXPECT_TRUE(test::same_bits(inout, expected.y));
    HostArray dx = in.dy.with_padding(2);
    rmsnorm_backward({.dy = dx, .x = in.x, .gamma = in.gamma, .rstd = expected.rstd, .dx = dx},
                     test::test_stream());
    EXPECT_TRUE(test::same_bits(dx, backward(in, expected, dtype).dx));
  }
}

TEST(RmsNorm, ManyRows_SameBitsForAllThreadCounts) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Inputs in = make_inputs(test::runs_on_cuda() ? 260 : 1500, 130, dtype);
    EXPECT_TRUE(test::same_for_all_thread_counts([&] {
      const Result r = forward(in.x, in.gamma);
      const Gradients d = backward(in, r, dtype);
      return std::vector<HostArray>{r.y, r.rstd, d.dx, d.dgamma};
    }));
  }
}

TEST(RmsNorm, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{4, 8}, DType::bf16);
  HostArray gamma(Shape{8}, DType::bf16);
  HostArray rstd(Shape{4}, DType::f32);
  EXPECT_THAT(test::message_of_invalid(
                  [&] { rmsnorm_forward({.x = x, .gamma = rstd, .y = x}, test::test_stream()); }),
              HasSubstr("gamma must be bf16, not f32"));
  EXPECT_THAT(test::message_of_invalid([&] {
                rmsnorm_backward(
                    {.dy = x, .x = x, .gamma = gamma, .rstd = rstd, .dx = x, .dgamma = gamma},
                    test::test_stream());
              }),
              HasSubstr("workspace is missing"));
  EXPECT_EQ(cost(RmsNormForward{.x = x, .gamma = gamma, .y = x}).bytes(), 64 + 16 + 64);
  EXPECT_EQ(cost(RmsNormBackward{.dy = x, .x = x, .gamma = gamma, .rstd = rstd, .dx = x}).bytes(),
            3 * 64 + 16 + 16);
  const View rows = test::meta_view(Shape{4, 8}, DType::f32);
  rmsnorm_forward({.x = rows, .gamma = test::meta_view(Shape{8}, DType::f32, 2), .y = rows},
                  test::test_stream());
}

}  // namespace rmsnorm_test
}  // namespace zinc::kernels
