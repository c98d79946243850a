#include "kernels/layernorm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace layernorm_test {

using test::HostArray;
using testing::HasSubstr;

constexpr double kEps = 1e-5;

DType statistic_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

struct Inputs {
  HostArray x, gamma, beta, dy;
};

Inputs make_inputs(int64_t rows, int64_t cols, DType dtype) {
  return {HostArray::random(Shape{rows, cols}, dtype, 1, -1.0, 3.0),
          HostArray::random(Shape{cols}, dtype, 2, 0.5, 1.5),
          HostArray::random(Shape{cols}, dtype, 3), HostArray::random(Shape{rows, cols}, dtype, 4)};
}

struct Result {
  HostArray y, mean, rstd;
};

Result forward(const HostArray& x, const HostArray& gamma, const HostArray& beta) {
  const test::DeviceScope scope(test::device_for(x.dtype()));
  const DType statistic = statistic_of(x.dtype());
  Result r{HostArray(x.shape(), x.dtype()), HostArray(Shape{x.shape().rows()}, statistic),
           HostArray(Shape{x.shape().rows()}, statistic)};
  layernorm_forward(
      {.x = x, .gamma = gamma, .beta = beta, .y = r.y, .mean = r.mean, .rstd = r.rstd, .eps = kEps},
      test::test_stream());
  return r;
}

struct Gradients {
  HostArray dx, dgamma, dbeta;
};

HostArray workspace_for(const HostArray& x) {
  return HostArray(Shape{norm_backward_workspace_bytes(x.shape().rows(), x.shape().cols(),
                                                       x.dtype(), x.view().device().kind)},
                   DType::u8);
}

Gradients backward(const Inputs& in, const Result& saved, DType sums) {
  const test::DeviceScope scope(test::device_for(in.x.dtype()));
  const Shape cols{in.x.shape().cols()};
  Gradients d{HostArray(in.x.shape(), in.x.dtype()), HostArray(cols, sums), HostArray(cols, sums)};
  const HostArray workspace = workspace_for(in.x);
  layernorm_backward({.dy = in.dy,
                      .x = in.x,
                      .gamma = in.gamma,
                      .mean = saved.mean,
                      .rstd = saved.rstd,
                      .dx = d.dx,
                      .dgamma = d.dgamma,
                      .dbeta = d.dbeta,
                      .workspace = workspace},
                     test::test_stream());
  return d;
}

TEST(LayerNorm, F64_FollowsTheFormula) {
  for (const int64_t cols : {1, 3, 17, 1023, 1025}) {
    const Inputs in = make_inputs(3, cols, DType::f64);
    const Result r = forward(in.x, in.gamma, in.beta);
    for (int64_t row = 0; row < 3; ++row) {
      double mean = 0.0;
      for (int64_t c = 0; c < cols; ++c) mean += in.x.at(row * cols + c) / double(cols);
      double variance = 0.0;
      for (int64_t c = 0; c < cols; ++c) {
        variance += std::pow(in.x.at(row * cols + c) - mean, 2) / double(cols);
      }
      const double rstd = 1.0 / std::sqrt(variance + kEps);
      ASSERT_NEAR(r.mean.at(row), mean, 1e-13);
      ASSERT_NEAR(r.rstd.at(row), rstd, 1e-13 * rstd);
      for (int64_t c = 0; c < cols; ++c) {
        const double expected =
            (in.x.at(row * cols + c) - mean) * rstd * in.gamma.at(c) + in.beta.at(c);
        ASSERT_NEAR(r.y.at(row * cols + c), expected, 1e-11);
      }
    }
  }
}

TEST(LayerNorm, ShortFloats_AreTheF64ResultOfTheRoundedArguments) {
  for (const DType dtype : test::kShortFloatDTypes) {
    for (const int64_t cols : {3, 17, 96, 768, 1023, 1025, 9001}) {
      const Inputs in = make_inputs(5, cols, dtype);
      const Result got = forward(in.x, in.gamma, in.beta);
      const Result expected =
          forward(in.x.as(DType::f64), in.gamma.as(DType::f64), in.beta.as(DType::f64));
      // Sums in at least 16 lanes lose at most the square root of cols / 16 units of f32 in the
      // mean and the variance; x is at most a few standard deviations. One rounding to the dtype.
      const double in_f32 = (4 + std::sqrt(double(cols) / 16.0)) * 0x1p-23;
      EXPECT_LE(test::relative_l2(got.y, expected.y), test::epsilon_of(dtype) + in_f32)
          << name_of(dtype) << " " << cols;
      EXPECT_LE(test::max_relative_error(got.mean, expected.mean, 1.0), in_f32);
      EXPECT_LE(test::max_relative_error(got.rstd, expected.rstd, 0.0), in_f32);
    }
  }
}

TEST(LayerNorm, RowFarFromZero_KeepsItsVariance) {
  // mean 4096, variance 1 up to rounding: E[x^2] - E[x]^2 would lose it in f32.
  HostArray x(Shape{1, 1024}, DType::f32);
  for (int64_t c = 0; c < 1024; ++c) x.set(c, 4096.0 + (c % 2 == 0 ? 1.0 : -1.0));
  const HostArray gamma = HostArray::full(Shape{1024}, DType::f32, 1.0);
  const HostArray beta = HostArray::full(Shape{1024}, DType::f32, 0.0);
  const Result r = forward(x, gamma, beta);
  EXPECT_EQ(r.mean.at(0), 4096.0);
  EXPECT_NEAR(r.y.at(0), 1.0, 1e-5);
  EXPECT_NEAR(r.y.at(1), -1.0, 1e-5);
}

TEST(LayerNorm, WithoutBetaAndStatistics_SameValues) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const Inputs in = make_inputs(4, 70, dtype);
    const HostArray zero = HostArray::full(Shape{70}, dtype, 0.0);
    HostArray y(in.x.shape(), dtype);
    layernorm_forward({.x = in.x, .gamma = in.gamma, .y = y, .eps = kEps}, test::test_stream());
    EXPECT_LE(test::max_relative_error(y, forward(in.x, in.gamma, zero).y, 0.0), 0.0);
  }
}

TEST(LayerNorm, StridedRowsAndInPlace_SameBits) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const Inputs in = make_inputs(6, 131, dtype);
    const Result expected = forward(in.x, in.gamma, in.beta);
    HostArray inout = in.x.with_padding(5);
    layernorm_forward({.x = inout, .gamma = in.gamma, .beta = in.beta, .y = inout, .eps = kEps},
                      test::test_stream());
    EXPECT_TRUE(test::same_bits(inout, expected.y));

    const Gradients d = backward(in, expected, dtype);
    const HostArray workspace = workspace_for(in.x);
    for (const bool in_place_of_dy : {true, false}) {
      HostArray dx = (in_place_of_dy ? in.dy : in.x).with_padding(2);
      layernorm_backward({.dy = in_place_of_dy ? ConstView(dx) : ConstView(in.dy),
                          .x = in_place_of_dy ? ConstView(in.x) : ConstView(dx),
                          .gamma = in.gamma,
                          .mean = expected.mean,
                          .rstd = expected.rstd,
                          .dx = dx,
                          .workspace = workspace},
                         test::test_stream());
      EXPECT_TRUE(test::same_bits(dx, d.dx));
    }
  }
}

TEST(LayerNormBackward, F64_MatchesCentralDifferences) {
  const Inputs in = make_inputs(4, 19, DType::f64);
  const Gradients d = backward(in, forward(in.x, in.gamma, in.beta), DType::f64);
  const auto y_of = [&](const HostArray& x, const HostArray& gamma, const HostArray& beta) {
    return forward(x, gamma, beta).y;
  };
  EXPECT_LE(test::relative_l2(d.dx, test::numeric_gradient(in.x, in.dy,
                                                           [&](const HostArray& at) {
                                                             return y_of(at, in.gamma, in.beta);
                                                           })),
            test::kGradientTolerance);
  EXPECT_LE(test::relative_l2(d.dgamma, test::numeric_gradient(in.gamma, in.dy,
                                                               [&](const HostArray& at) {
                                                                 return y_of(in.x, at, in.beta);
                                                               })),
            test::kGradientTolerance);
  EXPECT_LE(test::relative_l2(d.dbeta, test::numeric_gradient(in.beta, in.dy,
                                                              [&](const HostArray& at) {
                                                                return y_of(in.x, in.gamma, at);
                                                              })),
            test::kGradientTolerance);
}

TEST(LayerNormBackward, ShortFloats_AreTheF64ResultOfTheRoundedArguments) {
  for (const DType dtype : test::kShortFloatDTypes) {
    // On a GPU the shapes also cover three and four packs per thread of a warp, several groups of
    // warps in a block with fewer rows than groups, and a block of one group that goes on with
    // another row.
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 17},
                                     {3, 1025},
                                     {700, 96},
                                     {40, 9001},
                                     {5, 768},
                                     {9, 1024},
                                     {7, 1040},
                                     {266, 2056}}) {
      if (rows == 266 && dtype != DType::f32) continue;
      const Inputs in = make_inputs(rows, cols, dtype);
      const Inputs wide{in.x.as(DType::f64), in.gamma.as(DType::f64), in.beta.as(DType::f64),
                        in.dy.as(DType::f64)};
      const Result saved = forward(in.x, in.gamma, in.beta);
      const Gradients got = backward(in, saved, dtype);
      const Gradients expected = backward(wide, forward(wide.x, wide.gamma, wide.beta), DType::f64);
      const double epsilon = test::epsilon_of(dtype);
      // dx: as in the forward pass, with two more sums. dgamma and dbeta: sums over rows in runs of
      // at most 32 and blocks, each a random walk of f32 roundings.
      const double in_f32 = (8 + 2 * std::sqrt(double(cols) / 16.0)) * 0x1p-23;
      EXPECT_LE(test::relative_l2(got.dx, expected.dx), epsilon + in_f32) << name_of(dtype);
      EXPECT_LE(test::relative_l2(got.dgamma, expected.dgamma), epsilon + in_f32 + 12 * 0x1p-23);
      EXPECT_LE(test::relative_l2(got.dbeta, expected.dbeta), epsilon + 12 * 0x1p-23);
      if (dtype == DType::f32) continue;
      const Gradients sums = backward(in, saved, DType::f32);
      EXPECT_LE(test::relative_l2(sums.dgamma, expected.dgamma), in_f32 + 12 * 0x1p-23);
      EXPECT_LE(test::relative_l2(sums.dbeta, expected.dbeta), 12 * 0x1p-23);
      EXPECT_TRUE(test::same_bits(sums.dgamma.as(dtype), got.dgamma));
    }
  }
}

TEST(LayerNormBackward, ResidualGradient_IsAddedBeforeRounding) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const Inputs in = make_inputs(5, 70, dtype);
    const Result saved = forward(in.x, in.gamma, in.beta);
    const HostArray past = HostArray::random(in.x.shape(), dtype, 5);
    const Gradients alone = backward(in, saved, dtype);
    HostArray inout = past.with_padding(1);
    HostArray dgamma(Shape{70}, dtype);
    const HostArray workspace = workspace_for(in.x);
    layernorm_backward({.dy = in.dy,
                        .x = in.x,
                        .gamma = in.gamma,
                        .mean = saved.mean,
                        .rstd = saved.rstd,
                        .dresidual = inout,
                        .dx = inout,
                        .dgamma = dgamma,
                        .workspace = workspace},
                       test::test_stream());
    EXPECT_TRUE(test::same_bits(dgamma, alone.dgamma));
    for (int64_t i = 0; i < past.numel(); ++i) {
      const double sum = past.at(i) + alone.dx.at(i);
      // f32 and f64: the very sum. 16 bits: the two roundings of the composition against one.
      const double tolerance =
          size_of(dtype) > 2
              ? test::epsilon_of(dtype) * std::fabs(sum)
              : test::epsilon_of(dtype) * (std::fabs(alone.dx.at(i)) + std::fabs(sum));
      ASSERT_NEAR(inout.at(i), sum, tolerance + 1e-30);
    }
  }
}

TEST(LayerNormBackward, ParameterGradients_AccumulateEachByItsOwnFlag) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    const Inputs in = make_inputs(40, 33, dtype);
    const Result saved = forward(in.x, in.gamma, in.beta);
    const DType sums = statistic_of(dtype);
    const Gradients fresh = backward(in, saved, sums);
    HostArray dgamma = HostArray::full(Shape{33}, sums, 2.0);
    HostArray dbeta = HostArray::full(Shape{33}, sums, 2.0);
    HostArray dx(in.x.shape(), dtype);
    const HostArray workspace = workspace_for(in.x);
    layernorm_backward({.dy = in.dy,
                        .x = in.x,
                        .gamma = in.gamma,
                        .mean = saved.mean,
                        .rstd = saved.rstd,
                        .dx = dx,
                        .dgamma = dgamma,
                        .dbeta = dbeta,
                        .accumulate_dgamma = true,
                        .workspace = workspace},
                       test::test_stream());
    EXPECT_TRUE(test::same_bits(dbeta, fresh.dbeta));
    for (int64_t c = 0; c < 33; ++c) {
      const HostArray sum = HostArray::of({2.0 + fresh.dgamma.at(c)}, Shape{}, sums);
      ASSERT_EQ(dgamma.at(c), sum.at(0));
    }
  }
}

TEST(LayerNormBackward, NoRows_GivesZeroParameterGradients) {
  const Inputs in = make_inputs(0, 5, DType::f32);
  const Gradients d = backward(in, forward(in.x, in.gamma, in.beta), DType::f32);
  EXPECT_EQ(d.dgamma.values(), std::vector<double>(5, 0.0));
  EXPECT_EQ(d.dbeta.values(), std::vector<double>(5, 0.0));
}

TEST(LayerNorm, ManyRows_SameBitsForAllThreadCounts) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Inputs in = make_inputs(test::runs_on_cuda() ? 260 : 1500, 130, dtype);
    EXPECT_TRUE(test::same_for_all_thread_counts([&] {
      const Result r = forward(in.x, in.gamma, in.beta);
      const Gradients d = backward(in, r, dtype);
      return std::vector<HostArray>{r.y, r.mean, r.rstd, d.dx, d.dgamma, d.dbeta};
    }));
  }
}

TEST(LayerNorm, BadArguments_NameWhatIsWrong) {
  HostArray x(Shape{4, 8}, DType::bf16);
  HostArray gamma(Shape{8}, DType::bf16);
  HostArray other(Shape{7}, DType::bf16);
  HostArray short_statistic(Shape{3}, DType::f32);
  HostArray statistic(Shape{4}, DType::f32);
  const auto message = [&](const LayerNormForward& args) {
    return test::message_of_invalid([&] { layernorm_forward(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = x, .gamma = other, .y = x}), HasSubstr("gamma must have shape [8]"));
  EXPECT_THAT(message({.x = x, .gamma = gamma, .y = x, .mean = short_statistic}),
              HasSubstr("one element per row: 4 vs 3"));
  EXPECT_THAT(message({.x = x, .gamma = gamma, .y = x, .rstd = gamma}), HasSubstr("must be f32"));
  EXPECT_THAT(
      message({.x = HostArray::strided(Shape{2, 2, 8}, DType::bf16, 0).view().narrow(1, 0, 1),
               .gamma = gamma,
               .y = x}),
      HasSubstr("y must have shape [2, 1, 8]"));
  EXPECT_THAT(test::message_of_invalid([&] {
                layernorm_backward({.dy = x,
                                    .x = x,
                                    .gamma = gamma,
                                    .mean = statistic,
                                    .rstd = statistic,
                                    .dx = x,
                                    .dgamma = gamma},
                                   test::test_stream());
              }),
              HasSubstr("workspace is missing"));
}

TEST(LayerNorm, CostAndMetaDevice) {
  HostArray x(Shape{4, 8}, DType::bf16);
  HostArray gamma(Shape{8}, DType::bf16);
  EXPECT_EQ(cost(LayerNormForward{.x = x, .gamma = gamma, .y = x}).bytes(), 64 + 16 + 64);
  HostArray statistic(Shape{4}, DType::f32);
  EXPECT_EQ(cost(LayerNormBackward{.dy = x,
                                   .x = x,
                                   .gamma = gamma,
                                   .mean = statistic,
                                   .rstd = statistic,
                                   .dx = x,
                                   .dgamma = gamma})
                .bytes(),
            3 * 64 + 2 * 16 + 2 * 16);
  const View rows = test::meta_view(Shape{4, 8}, DType::f32);
  const View row = test::meta_view(Shape{8}, DType::f32, 2);
  layernorm_forward({.x = rows, .gamma = row, .y = rows}, test::test_stream());
}

}  // namespace layernorm_test
}  // namespace zinc::kernels
