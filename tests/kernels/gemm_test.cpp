#include "kernels/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "kernels/gelu.h"
#include "kernels/reduce.h"
#include "kernels/swiglu.h"
#include "kernels/unary.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace gemm_test {

using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;
using ::testing::ValuesIn;
using namespace zinc::test;

struct Extents {
  int64_t m, n, k;
};
void PrintTo(const Extents& e, std::ostream* out) { *out << e.m << "x" << e.n << "x" << e.k; }

// Shapes at the edges of lanes, register tiles, plan tiles and slices, and of narrow products.
constexpr Extents kExtents[] = {
    {1, 34, 4099}, {6, 37, 2051},  {2, 101, 64},   {4, 99, 70},    {7, 35, 2050}, {8, 390, 77},
    {9, 50, 70},   {1, 1, 1},      {1, 7, 3},      {5, 1, 9},      {3, 5, 7},     {17, 33, 65},
    {64, 48, 128}, {130, 390, 70}, {513, 385, 33}, {40, 60, 2100}, {1, 500, 300}, {700, 3, 129}};

Shape stored(int64_t rows, int64_t cols, bool transposed) {
  return transposed ? Shape{cols, rows} : Shape{rows, cols};
}

// alpha op(A) op(B), added up in k order, straight from the definition.
HostArray multiply_naively(const HostArray& a, const HostArray& b, const Extents& e, bool ta,
                           bool tb) {
  HostArray c({e.m, e.n}, DType::f64);
  for (int64_t i = 0; i < e.m; ++i) {
    for (int64_t j = 0; j < e.n; ++j) {
      double sum = 0.0;
      for (int64_t p = 0; p < e.k; ++p) {
        sum += a.at(ta ? p * e.m + i : i * e.k + p) * b.at(tb ? j * e.k + p : p * e.n + j);
      }
      c.set(i * e.n + j, sum);
    }
  }
  return c;
}

// Inputs are random with zero mean, so rounding errors of the k additions grow like sqrt(k) against
// a result that grows like sqrt(k): relative to the result's norm, k additions of partial sums give
// at most eps * sqrt(k) each way; 4 covers constants. One rounding to the output's dtype on top.
double tolerance(DType out, int64_t k) {
  const double accumulator = epsilon_of(out == DType::f64 ? DType::f64 : DType::f32);
  return epsilon_of(out) + 4.0 * accumulator * std::sqrt(static_cast<double>(k) + 1.0);
}

class GemmOver : public ::testing::TestWithParam<std::tuple<Extents, DType, bool, bool>> {
  const DeviceScope scope_{device_for(std::get<1>(GetParam()))};
};

TEST_P(GemmOver, RandomInputs_MatchDefinition) {
  const auto [e, dtype, ta, tb] = GetParam();
  CpuContext context;
  const HostArray a = HostArray::random(stored(e.m, e.k, ta), dtype, 1);
  const HostArray b = HostArray::random(stored(e.k, e.n, tb), dtype, 2);
  const HostArray expected = multiply_naively(a, b, e, ta, tb);
  HostArray c({e.m, e.n}, dtype);
  gemm({.a = a, .b = b, .c = c, .transpose_a = ta, .transpose_b = tb}, context.stream());
  EXPECT_LE(relative_l2(c, expected), tolerance(dtype, e.k));
}

TEST_P(GemmOver, SmallIntegers_AreExactAndStridesDoNotMatter) {
  const auto [e, dtype, ta, tb] = GetParam();
  CpuContext context;
  // Sums of k products of integers up to 3 stay below 2^24: exact in f32 in any order.
  const HostArray a_whole = HostArray::random(stored(e.m, e.k, ta), DType::i32, 3, -3, 4);
  const HostArray b_whole = HostArray::random(stored(e.k, e.n, tb), DType::i32, 4, -3, 4);
  const HostArray a = HostArray::of(a_whole.values(), a_whole.shape(), dtype).with_padding(5);
  const HostArray b = HostArray::of(b_whole.values(), b_whole.shape(), dtype).with_padding(19);
  const HostArray expected = multiply_naively(a, b, e, ta, tb);
  const DType out = dtype == DType::f64 ? DType::f64 : DType::f32;
  HostArray c = HostArray::strided({e.m, e.n}, out, 3);
  gemm({.a = a, .b = b, .c = c, .transpose_a = ta, .transpose_b = tb}, context.stream());
  EXPECT_EQ(c.values(), expected.values());
}

INSTANTIATE_TEST_SUITE_P(All, GemmOver,
                         Combine(ValuesIn(kExtents), ValuesIn(kFloatDTypes), Values(false, true),
                                 Values(false, true)));

class GemmOfType : public ::testing::TestWithParam<DType> {
  const DeviceScope scope_{device_for(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(All, GemmOfType, ValuesIn(kFloatDTypes),
                         [](const auto& test) { return to_string(test.param); });

TEST_P(GemmOfType, AlphaBetaAndBias_AreApplied) {
  const DType dtype = GetParam();
  CpuContext context;
  const Extents e{70, 45, 90};
  const HostArray a = HostArray::random({e.m, e.k}, dtype, 5);
  const HostArray b = HostArray::random({e.k, e.n}, dtype, 6);
  const HostArray bias = HostArray::random({e.n}, dtype, 7);
  const HostArray before = HostArray::random({e.m, e.n}, dtype, 8);
  HostArray expected = multiply_naively(a, b, e, false, false);
  for (int64_t i = 0; i < expected.numel(); ++i) {
    expected.set(i, 0.75 * expected.at(i) - 1.5 * before.at(i) + bias.at(i % e.n));
  }
  HostArray c = before;
  gemm({.a = a, .b = b, .bias = bias, .c = c, .alpha = 0.75, .beta = -1.5}, context.stream());
  EXPECT_LE(relative_l2(c, expected), tolerance(dtype, e.k));
}

// Whole tiles and their ends, one row, and sums that are cut into parts.
TEST_P(GemmOfType, Addend_GivesTheBitsOfSumsThatReplaceIt) {
  const DType dtype = GetParam();
  CpuContext context;
  for (const Extents e :
       {Extents{70, 45, 90}, {128, 128, 64}, {1, 264, 72}, {3, 5, 0}, {24, 24, 4096}}) {
    const HostArray a = HostArray::random({e.m, e.k}, dtype, 5);
    const HostArray b = HostArray::random({e.k, e.n}, dtype, 6);
    const HostArray bias = HostArray::random({e.n}, dtype, 7);
    const HostArray before = HostArray::random({e.m, e.n}, dtype, 8);
    for (const HostArray& addend : {before, before.with_padding(11)}) {
      const HostArray addend_before = addend;
      HostArray expected = before, c({e.m, e.n}, dtype);
      Gemm args{.a = a, .b = b, .bias = bias, .c = expected, .beta = -1.5};
      gemm(args, context.stream());
      args.addend = addend;
      args.c = c;
      gemm(args, context.stream());
      EXPECT_TRUE(same_bits(c, expected)) << e.m << " " << e.n << " " << e.k;
      EXPECT_TRUE(same_bits(addend, addend_before));
      // Sums of f32 that are accumulated in place begin with what is there.
      expected = before;
      gemm({.a = a, .b = b, .c = expected, .beta = 1.0}, context.stream());
      gemm({.a = a, .b = b, .addend = addend, .c = c, .beta = 1.0}, context.stream());
      EXPECT_LE(relative_l2(c, expected), tolerance(dtype, e.k));
    }
  }
}

// The gradient of a bias beside that of its weight.
TEST_P(GemmOfType, SumsOverK_AreThoseOfTheReduction) {
  const DType dtype = GetParam();
  CpuContext context;
  for (const bool of_a : {false, true}) {
    for (const bool adds : {false, true}) {
      const HostArray a = HostArray::random({300, 70}, dtype, 5);
      const HostArray b = HostArray::random({300, 45}, dtype, 6);
      HostArray c({70, 45}, dtype), sums = HostArray::random({of_a ? 70 : 45}, dtype, 7);
      HostArray expected = sums, product = c;
      gemm({.a = a, .b = b, .c = product, .transpose_a = true}, context.stream());
      reduce({.over = ReduceOver::leading, .x = of_a ? a : b, .y = expected, .accumulate = adds},
             context.stream());
      Gemm args{.a = a, .b = b, .adds_to_sums = adds, .c = c, .transpose_a = true};
      (of_a ? args.a_sums : args.b_sums) = sums.view();
      gemm(args, context.stream());
      EXPECT_TRUE(same_bits(sums, expected));
      EXPECT_TRUE(same_bits(c, product));
    }
  }
}

TEST_P(GemmOfType, PaddingAndNeighbours_AreLeftAlone) {
  const DType dtype = GetParam();
  CpuContext context;
  const HostArray a = HostArray::random({37, 20}, dtype, 9);
  const HostArray b = HostArray::random({20, 41}, dtype, 10);
  HostArray tight({37, 41}, dtype);
  HostArray wide = HostArray::full({37, 60}, dtype, 2.0);
  const HostArray wide_before = wide;
  for (const double beta : {0.0, 1.0}) {
    if (beta == 1.0) {
      tight.set_all(2.0);
      wide = wide_before;
    }
    gemm({.a = a, .b = b, .c = tight, .beta = beta}, context.stream());
    gemm({.a = a, .b = b, .c = wide.view().narrow(1, 7, 41), .beta = beta}, context.stream());
    for (int64_t r = 0; r < 37; ++r) {
      for (int64_t c = 0; c < 60; ++c) {
        const bool inside = c >= 7 && c < 48;
        EXPECT_EQ(wide.at(r * 60 + c), inside ? tight.at(r * 41 + c - 7) : 2.0) << r << " " << c;
      }
    }
  }
}

TEST_P(GemmOfType, NoK_GivesBetaCPlusBias) {
  const DType dtype = GetParam();
  CpuContext context;
  const HostArray a({6, 0}, dtype);
  const HostArray b({0, 5}, dtype);
  const HostArray bias = HostArray::of({1, 2, 3, 4, 5}, {5}, dtype);
  HostArray c({6, 5}, dtype);  // NaN
  gemm({.a = a, .b = b, .c = c}, context.stream());
  EXPECT_EQ(c.values(), std::vector<double>(30, 0.0));
  c.set_all(4.0);
  gemm({.a = a, .b = b, .bias = bias, .c = c, .beta = 0.5}, context.stream());
  EXPECT_EQ(c.at(0), 3.0);
  EXPECT_EQ(c.at(29), 7.0);
}

TEST_P(GemmOfType, NoRowsOrColumns_DoNothing) {
  const DType dtype = GetParam();
  CpuContext context;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{0, 5}, {5, 0}, {0, 0}}) {
    HostArray a({m, 3}, dtype), b({3, n}, dtype), c({m, n}, dtype);
    gemm({.a = a, .b = b, .c = c}, context.stream());
  }
}

struct OneActivation {
  Activation kind;
  double (*value)(double);
};
constexpr double kPi = 3.14159265358979323846;
const OneActivation kActivations[] = {
    // 0.5 x (1 + tanh(u)) without its cancellation.
    {Activation::gelu_tanh,
     [](double x) {
       return x / (1 + std::exp(-2 * std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x)));
     }},
    {Activation::gelu_erf, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
    {Activation::silu, [](double x) { return x / (1 + std::exp(-x)); }},
};

// A product whose z are the given values: a column of them times the number one.
struct Column {
  HostArray a, b;
  Column(const std::vector<double>& values, DType dtype)
      : a(HostArray::of(values, {static_cast<int64_t>(values.size()), 1}, dtype)),
        b(HostArray::of({1.0}, {1, 1}, dtype)) {}
};

std::vector<double> grid(double low, double high, double step) {
  std::vector<double> values;
  for (double x = low; x <= high; x += step) values.push_back(x);
  return values;
}

TEST_P(GemmOfType, Activations_MatchTheirFormulas) {
  const DType dtype = GetParam();
  CpuContext context;
  // f32: relative error of every value, also in the tails, as stated in activation-inl.h.
  const double bound = dtype == DType::f64 ? 1e-13 : 6e-6 + epsilon_of(dtype);
  const Column column(grid(-9.0, 9.0, 1.0 / 64), dtype);
  for (const OneActivation& activation : kActivations) {
    HostArray c({column.a.numel(), 1}, dtype);
    HostArray pre = c;
    gemm({.a = column.a,
          .b = column.b,
          .c = c,
          .pre_activation = pre,
          .activation = activation.kind},
         context.stream());
    EXPECT_TRUE(same_bits(pre, column.a));
    HostArray expected({column.a.numel(), 1}, DType::f64);
    for (int64_t i = 0; i < c.numel(); ++i) expected.set(i, activation.value(column.a.at(i)));
    // Below the normal numbers of f16 only the absolute error is small.
    const double floor = dtype == DType::f16 ? 0x1p-14 : 1e-30;
    EXPECT_LE(max_relative_error(c, expected, floor), bound);
  }
}

TEST_P(GemmOfType, ActivationGradient_MatchesCentralDifferences) {
  const DType dtype = GetParam();
  CpuContext context;
  const std::vector<double> points = grid(-9.0, 9.0, 1.0 / 32);
  const auto n = static_cast<int64_t>(points.size());
  const Column ones(std::vector<double>(points.size(), 1.0), dtype);
  const HostArray x = HostArray::of(points, {n, 1}, dtype);
  for (const OneActivation& activation : kActivations) {
    HostArray c({n, 1}, dtype);
    gemm({.a = ones.a, .b = ones.b, .activation_input = x, .c = c, .activation = activation.kind},
         context.stream());
    for (int64_t i = 0; i < n; ++i) {
      const double h = 1e-4;
      const double derivative =
          (activation.value(x.at(i) + h) - activation.value(x.at(i) - h)) / (2 * h);
      // Differences: h^2 * f''' / 6 < 1e-8 and 1e-16 / h. Derivatives are at most 1.13.
      EXPECT_NEAR(c.at(i), derivative,
                  2e-8 + 1.2 * epsilon_of(dtype) + (dtype == DType::f64 ? 0 : 4e-7))
          << x.at(i);
    }
  }
}

TEST_P(GemmOfType, Activation_IsThatOfTheRoundedProduct) {
  const DType dtype = GetParam();
  CpuContext context;
  const Extents e{65, 50, 77};
  const HostArray a = HostArray::random({e.m, e.k}, dtype, 11);
  const HostArray b = HostArray::random({e.n, e.k}, dtype, 12);
  const HostArray bias = HostArray::random({e.n}, dtype, 13);
  for (const OneActivation& activation : kActivations) {
    HostArray plain({e.m, e.n}, dtype), fused = plain, fused_saving = plain, pre = plain;
    Gemm args{.a = a, .b = b, .bias = bias, .c = plain, .transpose_b = true};
    gemm(args, context.stream());
    args.activation = activation.kind;
    args.c = fused;
    gemm(args, context.stream());
    args.c = fused_saving;
    args.pre_activation = pre;
    gemm(args, context.stream());
    EXPECT_TRUE(same_bits(pre, plain));
    EXPECT_TRUE(same_bits(fused, fused_saving));
    // The same function on the rounded values, one by one.
    const HostArray one = HostArray::of({1.0}, {1, 1}, dtype);
    HostArray column({e.m * e.n, 1}, dtype);
    gemm({.a = plain.view().reshape({e.m * e.n, 1}),
          .b = one,
          .c = column,
          .activation = activation.kind},
         context.stream());
    EXPECT_EQ(column.values(), fused.values());
  }
}

// Fused activations against the ops of their own, on the product as it is rounded.
TEST_P(GemmOfType, FusedActivation_IsTheOpAfterTheProduct) {
  const DType dtype = GetParam();
  CpuContext context;
  const Extents e{33, 50, 20};
  const HostArray a = HostArray::random({e.m, e.k}, dtype, 25, -2, 2);
  const HostArray b = HostArray::random({e.k, e.n}, dtype, 26, -2, 2);
  HostArray z({e.m, e.n}, dtype), separate = z, fused = z;
  gemm({.a = a, .b = b, .c = z}, context.stream());
  for (const OneActivation& activation : kActivations) {
    if (activation.kind == Activation::silu) {
      unary({.op = UnaryOp::silu, .x = z, .y = separate}, context.stream());
    } else {
      const bool erf = activation.kind == Activation::gelu_erf;
      gelu_forward({.kind = erf ? GeluKind::erf : GeluKind::tanh, .x = z, .y = separate},
                   context.stream());
    }
    gemm({.a = a, .b = b, .c = fused, .activation = activation.kind}, context.stream());
    // Below f64 both use one formula. In f64 the two are written independently.
    EXPECT_LE(relative_l2(fused, separate), dtype == DType::f64 ? 1e-15 : 0.0);
  }
}

// The gradients of silu(x) * u within the product that makes that of the result, also over u and x.
TEST_P(GemmOfType, FactorsGradients_AreTheOpAfterTheProduct) {
  const DType dtype = GetParam();
  CpuContext context;
  for (const Extents e : {Extents{33, 50, 20}, {4, 24, 4096}, {70, 128, 64}}) {
    const HostArray a = HostArray::random({e.m, e.k}, dtype, 25, -2, 2);
    const HostArray b = HostArray::random({e.k, e.n}, dtype, 26, -2, 2);
    const HostArray x = HostArray::random({e.m, e.n}, dtype, 27, -3, 3);
    const HostArray u = HostArray::random({e.m, e.n}, dtype, 28, -3, 3);
    HostArray z({e.m, e.n}, dtype), of_x = z, of_u = z, fused = z, other = z;
    gemm({.a = a, .b = b, .c = z}, context.stream());
    swiglu_backward({.dy = z, .gate = x, .up = u, .dgate = of_x, .dup = of_u}, context.stream());
    Gemm args{.a = a,
              .b = b,
              .activation_input = x,
              .factor = u,
              .factor_gradient = other,
              .c = fused,
              .activation = Activation::silu};
    gemm(args, context.stream());
    EXPECT_TRUE(same_bits(fused, of_x));
    EXPECT_TRUE(same_bits(other, of_u));
    for (const bool over_x : {false, true}) {
      HostArray taken = over_x ? x : u, padded = fused.with_padding(9);
      padded.set_all(0.0);
      args.activation_input = over_x ? taken : x;
      args.factor = over_x ? u : taken;
      args.factor_gradient = taken;
      args.c = padded;
      gemm(args, context.stream());
      EXPECT_TRUE(same_bits(padded, of_x));
      EXPECT_TRUE(same_bits(taken, of_u));
    }
  }
}

TEST_P(GemmOfType, ActivationGradient_MayOverwriteItsInput) {
  const DType dtype = GetParam();
  CpuContext context;
  const HostArray a = HostArray::random({9, 5}, dtype, 27),
                  b = HostArray::random({5, 35}, dtype, 28);
  HostArray x = HostArray::random({9, 35}, dtype, 29, -3, 3), c({9, 35}, dtype);
  gemm({.a = a, .b = b, .activation_input = x, .c = c, .activation = Activation::gelu_tanh},
       context.stream());
  gemm({.a = a, .b = b, .activation_input = x, .c = x, .activation = Activation::gelu_tanh},
       context.stream());
  EXPECT_TRUE(same_bits(x, c));
}

TEST(Gemm, SpecialValues_PassThroughActivations) {
  CpuContext context;
  const double nan = std::nan(""), inf = INFINITY;
  const Column column({nan, inf, -1e30, 1e30, 0.0, -100.0}, DType::f32);
  const HostArray one = HostArray::full({6, 1}, DType::f32, 1.0);
  for (const OneActivation& activation : kActivations) {
    HostArray c({6, 1}, DType::f32);
    gemm({.a = column.a, .b = column.b, .c = c, .activation = activation.kind}, context.stream());
    EXPECT_TRUE(std::isnan(c.at(0)));
    EXPECT_EQ(c.at(1), inf);
    EXPECT_EQ(c.at(2), 0.0);
    EXPECT_EQ(c.at(3), static_cast<double>(1e30f));
    EXPECT_EQ(c.at(4), 0.0);
    EXPECT_NEAR(c.at(5), 0.0, 1e-30);
    const HostArray x = column.a;
    gemm({.a = one, .b = column.b, .activation_input = x, .c = c, .activation = activation.kind},
         context.stream());
    EXPECT_TRUE(std::isnan(c.at(0)));
    EXPECT_EQ(c.at(2), 0.0);
    EXPECT_EQ(c.at(3), 1.0);
    EXPECT_EQ(c.at(4), 0.5);
  }
}

// bf16 has steps of 2 at 256. 256 + (1 + 2^-9) is nearer to 258; a product rounded before it is
// added would be 1, and 257 ties to 256.
TEST(Gemm, AccumulationInto16Bits_RoundsOnce) {
  CpuContext context;
  const HostArray a = HostArray::of({1.0, 0x1p-9}, {1, 2}, DType::bf16);
  const HostArray b = HostArray::of({1.0, 1.0}, {2, 1}, DType::bf16);
  HostArray c = HostArray::of({256.0}, {1, 1}, DType::bf16);
  gemm({.a = a, .b = b, .c = c, .beta = 1.0}, context.stream());
  EXPECT_EQ(c.at(0), 258.0);
}

TEST(Gemm, SixteenBitInputs_CanHaveF32OutputAndBias) {
  CpuContext context;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Extents e{33, 20, 64};
    const HostArray a = HostArray::random({e.k, e.m}, dtype, 14);
    const HostArray b = HostArray::random({e.k, e.n}, dtype, 15);
    const HostArray bias = HostArray::random({e.n}, DType::f32, 16);
    HostArray expected = multiply_naively(a, b, e, true, false);
    for (int64_t i = 0; i < expected.numel(); ++i) {
      expected.set(i, expected.at(i) + bias.at(i % e.n) + 3.0);
    }
    HostArray c = HostArray::full({e.m, e.n}, DType::f32, 3.0);
    gemm({.a = a, .b = b, .bias = bias, .c = c, .transpose_a = true, .beta = 1.0},
         context.stream());
    EXPECT_LE(relative_l2(c, expected), tolerance(DType::f32, e.k));
  }
}

TEST(Gemm, Bits_DoNotDependOnThreads) {
  const Extents shapes[] = {
      {300, 500, 700}, {50, 40, 4000}, {1030, 96, 130}, {7, 1000, 50}, {260, 400, 1601}};
  for (const Extents& e : shapes) {
    for (const DType dtype : kShortFloatDTypes) {
      for (const bool ta : {false, true}) {
        for (const bool tb : {false, true}) {
          const HostArray a = HostArray::random(stored(e.m, e.k, ta), dtype, 17);
          const HostArray b = HostArray::random(stored(e.k, e.n, tb), dtype, 18);
          EXPECT_TRUE(same_bits_for_contexts([&](StreamRef stream) {
            HostArray plain({e.m, e.n}, DType::f32), sum = HostArray::full({e.m, e.n}, dtype, 0.5);
            gemm({.a = a, .b = b, .c = plain, .transpose_a = ta, .transpose_b = tb}, stream);
            gemm({.a = a,
                  .b = b,
                  .c = sum,
                  .transpose_a = ta,
                  .transpose_b = tb,
                  .beta = 1.0,
                  .activation = Activation::gelu_tanh},
                 stream);
            return std::vector<HostArray>{plain, sum};
          })) << ::testing::PrintToString(e)
              << " " << to_string(dtype) << ta << tb;
        }
      }
    }
  }
}

// The shape has edges of tiles and slices, and is small enough for all of a GPU's schedules.
TEST(Gemm, Bits_DoNotDependOnSchedules) {
  const Extents e{70, 66, 75};
  const HostArray a = HostArray::random({e.m, e.k}, DType::bf16, 17);
  const HostArray b = HostArray::random({e.n, e.k}, DType::bf16, 18);
  CpuContext context;
  EXPECT_TRUE(same_for_all_thread_counts([&] {
    HostArray c = HostArray::full({e.m, e.n}, DType::bf16, 0.5);
    gemm({.a = a,
          .b = b,
          .c = c,
          .transpose_b = true,
          .beta = 1.0,
          .activation = Activation::gelu_tanh},
         context.stream());
    return std::vector<HostArray>{c};
  }));
}

TEST(Gemm, OnAnotherStream_GivesTheSameBits) {
  CpuContext context;
  const HostArray a = HostArray::random({600, 700}, DType::bf16, 19);
  const HostArray b = HostArray::random({700, 500}, DType::bf16, 20);
  HostArray here({600, 500}, DType::bf16), there = here;
  gemm({.a = a, .b = b, .c = here}, context.stream());
  StreamRef worker = context.other_stream();
  gemm({.a = a, .b = b, .c = there}, worker);
  worker->synchronize();
  EXPECT_TRUE(same_bits(here, there));
}

TEST(Gemm, MetaDevice_TakesTheSameWorkspace) {
  const auto peak = [](const Device& device) {
    Context context(ContextOptions{.device = device, .num_threads = 2});
    ContextScope scope(context);
    HostArray a({64, 5000}, DType::f16), b({5000, 80}, DType::f16), c({64, 80}, DType::f16);
    const auto on = [&](HostArray& array) {
      return View(array.view().data(), array.dtype(), array.shape(), device);
    };
    gemm({.a = on(a), .b = on(b), .c = on(c)}, context.compute());
    EXPECT_EQ(context.allocator().report().at(Tier::device).live, 0);
    return context.allocator().report().at(Tier::device, Label::workspace).peak;
  };
  const int64_t real = peak(kCpu);
  EXPECT_GT(real, 0);
  EXPECT_EQ(real, peak(Device{.meta = true}));
}

TEST(Gemm, WrongArguments_AreNamed) {
  CpuContext context;
  const HostArray a({4, 6}, DType::f32), b({6, 5}, DType::f32);
  HostArray c({4, 5}, DType::f32);
  const auto message = [&](const std::function<void(Gemm&)>& change) {
    Gemm args{.a = a, .b = b, .c = c};
    change(args);
    return message_of_invalid([&] { gemm(args, context.stream()); });
  };
  const HostArray half_b({6, 5}, DType::bf16), vector({4}, DType::f32), cube({1, 4, 6}, DType::f32);
  HostArray half_c({4, 5}, DType::bf16), wide({4, 6}, DType::f32);
  EXPECT_THAT(message([&](Gemm& g) { g.b = {}; }), HasSubstr("gemm: b is missing"));
  EXPECT_THAT(message([&](Gemm& g) { g.a = cube; }), HasSubstr("a must have 2 dimensions"));
  EXPECT_THAT(message([&](Gemm& g) { g.transpose_a = true; }), HasSubstr("agree in K: 4"));
  EXPECT_THAT(message([&](Gemm& g) { g.b = half_b; }), HasSubstr("b must be f32"));
  EXPECT_THAT(message([&](Gemm& g) { g.c = half_c; }), HasSubstr("c must be f32"));
  EXPECT_THAT(message([&](Gemm& g) { g.c = wide; }), HasSubstr("c must be [4, 5]"));
  EXPECT_THAT(message([&](Gemm& g) { g.bias = vector; }), HasSubstr("bias must have shape [5]"));
  EXPECT_THAT(message([&](Gemm& g) { g.a_sums = View(vector.view()); }),
              HasSubstr("of an a that is transposed"));
  EXPECT_THAT(message([&](Gemm& g) { g.b_sums = View(vector.view()); }),
              HasSubstr("sums must have shape [5]"));
  EXPECT_THAT(message([&](Gemm& g) { g.addend = c; }), HasSubstr("needs a beta"));
  EXPECT_THAT(message([&](Gemm& g) {
                g.addend = wide;
                g.beta = 1.0;
              }),
              HasSubstr("addend must have shape [4, 5]"));
  EXPECT_THAT(message([&](Gemm& g) {
                g.addend = c;
                g.beta = 1.0;
              }),
              HasSubstr("must not overlap"));
  EXPECT_THAT(message([&](Gemm& g) { g.factor = c; }), HasSubstr("needs factor_gradient"));
  HostArray x({4, 5}, DType::f32), other = x;
  EXPECT_THAT(message([&](Gemm& g) {
                g.activation = Activation::silu;
                g.activation_input = x;
                g.factor = other;
                g.factor_gradient = c;
              }),
              HasSubstr("must not overlap"));
  EXPECT_THAT(message([&](Gemm& g) { g.pre_activation = c; }), HasSubstr("needs an activation"));
  EXPECT_THAT(message([&](Gemm& g) { g.activation_input = c; }), HasSubstr("needs an activation"));
  EXPECT_THAT(message([&](Gemm& g) {
                g.activation = Activation::silu;
                g.pre_activation = c;
              }),
              HasSubstr("must not overlap"));
  EXPECT_THAT(message([&](Gemm& g) {
                g.c = View(g.c.data(), DType::f32, {4, 5}, {2, 1}, device(), Tier::device);
              }),
              HasSubstr("rows of c overlap"));
  EXPECT_THAT(message([&](Gemm& g) {
                g.c = View(g.c.data(), DType::f32, {4, 5}, device(), Tier::pinned_host);
              }),
              HasSubstr("pinned_host"));
  EXPECT_THAT(
      message([&](Gemm& g) {
        g.c = View(g.c.data(), DType::f32, {4, 5}, Device{.kind = DeviceKind::cuda, .index = 1});
      }),
      HasSubstr("one device"));
}

TEST(Gemm, Cost_CountsEveryOperandOnce) {
  const HostArray a({4, 6}, DType::bf16), b({6, 5}, DType::bf16), bias({5}, DType::bf16);
  HostArray c({4, 5}, DType::f32);
  const Cost plain = cost(Gemm{.a = a, .b = b, .c = c});
  EXPECT_EQ(plain.bytes_read, 2 * (24 + 30));
  EXPECT_EQ(plain.bytes_written, 80);
  EXPECT_EQ(plain.flops, 2 * 4 * 5 * 6);
  const Cost more = cost(Gemm{.a = a, .b = b, .bias = bias, .c = c, .beta = 1.0});
  EXPECT_EQ(more.bytes_read, 2 * (24 + 30 + 5) + 80);
}

TEST(BatchedGemm, StridedAndRepeatedBatches_MatchSingleProducts) {
  CpuContext context;
  for (const DType dtype : kFloatDTypes) {
    const DeviceScope scope(device_for(dtype));
    // a: [B, T, H, D] seen as [B, H, T, D]; b: one [D, N] for all.
    const int64_t B = 2, T = 19, H = 3, D = 24, N = 35;
    const HostArray buffer = HostArray::random({B, T, H, D}, dtype, 21);
    const HostArray b = HostArray::random({D, N}, dtype, 22);
    HostArray c({B, H, T, N}, dtype);
    const ConstView a_view(buffer.view().data(), dtype, {B, H, T, D}, {T * H * D, D, H * D, 1},
                           device(), Tier::device);
    const ConstView b_view(b.view().data(), dtype, {B, H, D, N}, {0, 0, N, 1}, device(),
                           Tier::device);
    batched_gemm({.a = a_view, .b = b_view, .c = c, .alpha = 0.5}, context.stream());
    for (int64_t i = 0; i < B; ++i) {
      for (int64_t h = 0; h < H; ++h) {
        HostArray one({T, N}, dtype);
        const View a_one = buffer.view().narrow(0, i, 1).narrow(2, h, 1);
        gemm({.a = View(a_one.data(), dtype, {T, D}, {H * D, 1}, device(), Tier::device),
              .b = b,
              .c = one,
              .alpha = 0.5},
             context.stream());
        const HostArray got = HostArray::of(
            [&] {
              std::vector<double> values;
              for (int64_t x = 0; x < T * N; ++x) values.push_back(c.at((i * H + h) * T * N + x));
              return values;
            }(),
            {T, N}, dtype);
        // Other tiles may be cut for a batch, so sums may round otherwise.
        EXPECT_LE(relative_l2(got, one), 2 * tolerance(dtype, D));
      }
    }
  }
}

// Tiles of one column follow each other, then those of the next product with another b.
TEST(BatchedGemm, EachProductHasItsOwnB) {
  CpuContext context(1);
  const int64_t B = 2, m = 300, n = 40, k = 70;
  for (const DType dtype : kShortFloatDTypes) {
    const HostArray a = HostArray::random({B, m, k}, dtype, 23);
    const HostArray b = HostArray::random({B, k, n}, dtype, 24);
    HostArray c({B, m, n}, DType::f32);
    batched_gemm({.a = a, .b = b, .c = c}, context.stream());
    for (int64_t i = 0; i < B; ++i) {
      HostArray one({m, n}, DType::f32);
      gemm({.a = a.view().narrow(0, i, 1).reshape({m, k}),
            .b = b.view().narrow(0, i, 1).reshape({k, n}),
            .c = one},
           context.stream());
      for (int64_t x = 0; x < m * n; ++x) ASSERT_NEAR(c.at(i * m * n + x), one.at(x), 1e-3) << i;
    }
  }
}

TEST(BatchedGemm, TransposesAndAccumulation_MatchDefinition) {
  CpuContext context;
  const Extents e{30, 21, 50};
  for (const DType dtype : kFloatDTypes) {
    const DeviceScope scope(device_for(dtype));
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const Shape a_shape = stored(e.m, e.k, ta), b_shape = stored(e.k, e.n, tb);
        const HostArray a = HostArray::random({3, a_shape[0], a_shape[1]}, dtype, 23);
        const HostArray b = HostArray::random({3, b_shape[0], b_shape[1]}, dtype, 24);
        HostArray c = HostArray::full({3, e.m, e.n}, dtype, 1.0),
                  expected({3, e.m, e.n}, DType::f64);
        batched_gemm({.a = a, .b = b, .c = c, .transpose_a = ta, .transpose_b = tb, .beta = 2.0},
                     context.stream());
        const auto part = [](const HostArray& all, int64_t i, const Shape& shape) {
          std::vector<double> values;
          for (int64_t x = 0; x < shape.numel(); ++x)
            values.push_back(all.at(i * shape.numel() + x));
          return HostArray::of(values, shape, DType::f64);
        };
        for (int64_t i = 0; i < 3; ++i) {
          const HostArray one =
              multiply_naively(part(a, i, a_shape), part(b, i, b_shape), e, ta, tb);
          for (int64_t x = 0; x < one.numel(); ++x) {
            expected.set(i * one.numel() + x, one.at(x) + 2.0);
          }
        }
        EXPECT_LE(relative_l2(c, expected), tolerance(dtype, e.k));
      }
    }
  }
}

TEST(BatchedGemm, WrongArguments_AreNamed) {
  CpuContext context;
  const HostArray a({2, 4, 6}, DType::f32), b({3, 6, 5}, DType::f32), flat({4, 6}, DType::f32);
  HostArray c({2, 4, 5}, DType::f32);
  EXPECT_THAT(
      message_of_invalid([&] { batched_gemm({.a = flat, .b = b, .c = c}, context.stream()); }),
      HasSubstr("3 or more dimensions"));
  EXPECT_THAT(message_of_invalid([&] { batched_gemm({.a = a, .b = b, .c = c}, context.stream()); }),
              HasSubstr("leading dimensions must be equal"));
}

}  // namespace gemm_test
}  // namespace zinc::kernels
