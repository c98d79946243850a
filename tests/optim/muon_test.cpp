#include "optim/muon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "core/context.h"
#include "core/error.h"
#include "core/philox.h"
#include "tensor/tensor.h"

namespace zinc::optim {
namespace muon_test {

using testing::HasSubstr;
using Values = std::vector<double>;  // row-major

struct Rank {
  explicit Rank(ContextOptions options = {}) : context(std::move(options)), scope(context) {}
  Context context;
  ContextScope scope;
};

// n values uniform in [low, high).
Values random_values(int64_t n, uint64_t seed, double low = -1.0, double high = 1.0) {
  const RandomKey key = make_random_key(seed, Purpose::test, 0, 0, 0);
  Values values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = low + (high - low) * static_cast<double>(key.uniform(i));
  }
  return values;
}

// a b^T of a [m, k] and b [n, k].
Values times_transposed(const Values& a, const Values& b, size_t m, size_t n, size_t k) {
  Values c(m * n, 0.0);
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t l = 0; l < k; ++l) c[i * n + j] += a[i * k + l] * b[j * k + l];
    }
  }
  return c;
}

Values transposed(const Values& a, size_t rows, size_t columns) {
  Values t(a.size());
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) t[j * rows + i] = a[i * columns + j];
  }
  return t;
}

// The formulas of optim/muon.h, with rows <= columns by a transposition, as torch has them.
Values oracle(const Values& direction, const Shape& shape, const MuonOptions& options) {
  const auto rows = static_cast<size_t>(shape[0]);
  const auto columns = static_cast<size_t>(shape[1]);
  const bool tall = rows > columns;
  Values x = tall ? transposed(direction, rows, columns) : direction;
  const size_t n = std::min(rows, columns);
  const size_t m = std::max(rows, columns);
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::max(std::sqrt(squares), options.eps);
  for (int step = 0; step < options.steps; ++step) {
    const Values gram = times_transposed(x, x, n, n, m);
    const Values square = times_transposed(gram, gram, n, n, n);
    Values polynomial(n * n);
    for (size_t i = 0; i < n * n; ++i) {
      polynomial[i] = options.b * gram[i] + options.c * square[i];
    }
    const Values product = times_transposed(polynomial, transposed(x, n, m), n, m, n);
    for (size_t i = 0; i < n * m; ++i) x[i] = options.a * x[i] + product[i];
  }
  const double r = static_cast<double>(rows);
  const double c = static_cast<double>(columns);
  for (double& value : x) {
    value *= options.scale == MuonScale::original ? std::sqrt(std::max(1.0, r / c))
                                                  : 0.2 * std::sqrt(std::max(r, c));
  }
  return tall ? transposed(x, n, m) : x;
}

double relative_l2(const Values& actual, const Values& expected) {
  double apart = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    apart += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(apart / size);
}

// The step of `direction`, which is rounded to the dtype first.
Values step_of(const Muon& muon, const Values& direction, const Shape& shape, DType dtype) {
  const Tensor matrix = Tensor::from(direction, shape, dtype);
  muon.transform({.direction = matrix.view()}, {}, Context::current().compute());
  return matrix.to_vector<double>();
}

size_t numel_of(const Shape& shape) { return static_cast<size_t>(shape.numel()); }

// Values that the dtype holds exactly.
Values random_values_in(DType dtype, const Shape& shape, uint64_t seed, double size = 1.0) {
  return Tensor::from(random_values(shape.numel(), seed, -size, size), shape, dtype)
      .to_vector<double>();
}

const Shape kShapes[] = {{8, 20},  {20, 8},  {12, 12}, {2, 301}, {301, 2},
                         {1, 300}, {300, 1}, {1, 1},   {40, 56}, {65, 33}};

// Five steps of three products, and the normalisation: 16 roundings. A step leaves singular values
// near 1, where its derivative is at most 2 in size but for the largest, so errors add up to about
// twice as much.
double tolerance(DType dtype) {
  return 32 * (dtype == DType::f64 ? 0x1p-53 : dtype == DType::f32 ? 0x1p-24 : 0x1p-9);
}

TEST(Muon, Transform_FollowsTheFormulas) {
  const Rank rank;
  for (const Shape& shape : kShapes) {
    for (const MuonScale scale : {MuonScale::original, MuonScale::match_rms}) {
      for (const int steps : {1, 4, 5}) {
        const MuonOptions options{.steps = steps, .scale = scale};
        for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
          const Values direction = random_values_in(dtype, shape, 3, 1e-3);
          const Values expected = oracle(direction, shape, options);
          const Values actual = step_of(Muon(options), direction, shape, dtype);
          EXPECT_LE(relative_l2(actual, expected), tolerance(dtype))
              << str(shape, " ", dtype, " steps ", steps);
        }
      }
    }
  }
}

// The step does not depend on the size of a gradient, not even on a very small one's or where the
// sum of squares is beyond f32.
TEST(Muon, Transform_OfADirectionTimesAPowerOf2_HasTheSameBits) {
  const Rank rank;
  const Muon muon({.eps = 1e-35});
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const Shape& shape : {Shape{24, 40}, Shape{40, 24}}) {
      Values direction = random_values_in(dtype, shape, 3);
      const Values expected = step_of(muon, direction, shape, dtype);
      for (const double factor : {0x1p-100, 0x1p100}) {
        Values scaled = direction;
        for (double& value : scaled) value *= factor;
        EXPECT_EQ(step_of(muon, scaled, shape, dtype), expected) << str(dtype, " ", factor);
      }
    }
  }
}

TEST(Muon, Transform_OfAZeroMatrixIsZeroAndOfATinyOneSmall) {
  const Rank rank;
  const Muon muon(MuonOptions{});
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const Shape& shape : kShapes) {
      for (const double value : step_of(muon, Values(numel_of(shape), 0.0), shape, dtype)) {
        ASSERT_EQ(value, 0.0);
        ASSERT_FALSE(std::signbit(value));
      }
    }
    // A norm of 4e-9, below eps: the iteration begins at 0.04 of it, and multiplies by at most a
    // each time.
    const Values tiny(16, 1e-9);
    for (const double value : step_of(muon, tiny, Shape{4, 4}, dtype)) {
      EXPECT_GT(value, 0.0);
      EXPECT_LT(value, 1.0);
    }
  }
}

TEST(Muon, Transform_HasTheSameBitsForAllNumbersOfThreads) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const Shape& shape : {Shape{96, 272}, Shape{272, 96}, Shape{144, 144}}) {
      const Values direction = random_values(shape.numel(), 5);
      Values expected;
      for (const int threads : {1, 2, 4, 4}) {
        const Rank rank({.num_threads = threads, .memory = {.poison = true}});
        const Values actual = step_of(Muon(MuonOptions{}), direction, shape, dtype);
        if (expected.empty()) expected = actual;
        ASSERT_EQ(actual, expected) << str(dtype, " ", shape, " threads ", threads);
      }
    }
  }
}

TEST(Muon, Transform_TakesAsMuchMemoryOnAMetaDevice) {
  const auto peaks = [](Device device, const Shape& shape) {
    const Rank rank({.device = device});
    const Tensor matrix = Tensor::empty(shape, DType::f32);
    Muon(MuonOptions{}).transform({.direction = matrix.view()}, {}, Context::current().compute());
    return Context::current().allocator().report().at(Tier::device, Label::workspace).peak;
  };
  for (const Shape& shape : {Shape{64, 256}, Shape{256, 64}}) {
    const int64_t peak = peaks(kCpu, shape);
    EXPECT_EQ(peaks({.meta = true}, shape), peak);
    EXPECT_GE(peak, 4 * (64 * 256 + 2 * 64 * 64));
  }
}

// --- the parts of an update together

struct Matrix {
  Tensor weights, momentum, direction, model;
};

Matrix make_matrix(const Shape& shape, const Muon& muon, DType states) {
  const int64_t n = shape.numel();
  return {Tensor::from(random_values(n, 1), {n}, DType::f32), Tensor::zeros({n}, states),
          Tensor::empty({n}, muon.direction_dtype(DType::f32)), Tensor::empty({n}, DType::bf16)};
}

// One update whose elementwise parts come in ranges of `length` elements.
void update(const Muon& muon, const Matrix& of, const Shape& shape, const HyperParameters& hyper,
            const Tensor& gradient, const Tensor& factor, int64_t step, int64_t length) {
  const StreamRef stream = Context::current().compute();
  const int64_t n = shape.numel();
  const auto for_ranges = [&](const auto& body) {
    for (int64_t begin = 0; begin < n; begin += length) {
      const auto part = [&](const Tensor& whole) {
        return whole.view().narrow(0, begin, std::min(length, n - begin));
      };
      Update args{.weights = part(of.weights), .step = step, .site = 7, .first_element = begin};
      body(args, part);
    }
  };
  for_ranges([&](Update& args, const auto& part) {
    args.gradient = part(gradient);
    args.states[0] = part(of.momentum);
    args.direction = part(of.direction);
    args.factor = factor.view();
    muon.direct(args, hyper, stream);
  });
  muon.transform({.direction = of.direction.view().reshape(shape)}, hyper, stream);
  for_ranges([&](Update& args, const auto& part) {
    args.gradient = part(of.direction);
    args.model_weights = part(of.model);
    muon.apply(args, hyper, stream);
  });
}

constexpr HyperParameters kHyper{.lr = 0.02, .weight_decay = 0.1, .momentum = 0.95};

// Each line in f32, each operation rounded, as Note [Bits of an update] says.
TEST(Muon, AnUpdate_IsTheStatedOperationsRoundTheTransform) {
  const Rank rank;
  const Shape shape{9, 14};
  const auto n = static_cast<size_t>(shape.numel());
  const Tensor factor = Tensor::from({0.37f}, {1});
  for (const bool nesterov : {true, false}) {
    for (const DType products : {DType::f32, DType::bf16}) {
      const Muon muon({.nesterov = nesterov, .products = products});
      const Matrix matrix = make_matrix(shape, muon, DType::f32);
      Values w = matrix.weights.to_vector<double>();
      Values u(n, 0.0);
      for (int64_t step = 1; step <= 3; ++step) {
        const Tensor gradient =
            Tensor::from(random_values(shape.numel(), 10 + step), {shape.numel()}, DType::bf16);
        const std::vector<float> g = gradient.to_vector<float>();
        update(muon, matrix, shape, kHyper, gradient, factor, step, shape.numel());
        Values d(n);
        const auto momentum = static_cast<float>(kHyper.momentum);
        for (size_t i = 0; i < n; ++i) {
          const float share = static_cast<float>(1.0 - kHyper.momentum) * (g[i] * 0.37f);
          const float mean = std::fma(momentum, static_cast<float>(u[i]), share);
          u[i] = double{mean};
          d[i] = double{nesterov ? std::fma(momentum, mean, share) : mean};
        }
        const Values x = step_of(muon, d, shape, products);
        const auto decay = static_cast<float>(-kHyper.lr * kHyper.weight_decay);
        for (size_t i = 0; i < n; ++i) {
          auto weight = static_cast<float>(w[i]);
          weight = std::fma(decay, weight, weight);
          weight = std::fma(static_cast<float>(-kHyper.lr), static_cast<float>(x[i]), weight);
          w[i] = double{weight};
        }
        ASSERT_EQ(matrix.momentum.to_vector<double>(), u);
        ASSERT_EQ(matrix.direction.to_vector<double>(), x);
        ASSERT_EQ(matrix.weights.to_vector<double>(), w);
        ASSERT_EQ(matrix.model.to_vector<double>(),
                  Tensor::from(w, {shape.numel()}, DType::bf16).to_vector<double>());
      }
    }
  }
}

TEST(Muon, RangesOfAnUpdate_ChangeNoBit) {
  const Rank rank;
  const Shape shape{37, 50};
  const Tensor factor = Tensor::from({0.25f}, {1});
  for (const DType states : {DType::f32, DType::bf16}) {
    for (const DType products : {DType::f32, DType::bf16}) {
      std::vector<Values> expected;
      for (const int64_t length : {int64_t{1850}, int64_t{777}, int64_t{100}}) {
        const Muon muon({.products = products}, 5);
        const Matrix matrix = make_matrix(shape, muon, states);
        for (int64_t step = 1; step <= 3; ++step) {
          const Tensor gradient = Tensor::from(random_values(1850, 10 + step), {1850}, DType::f32);
          update(muon, matrix, shape, kHyper, gradient, factor, step, length);
        }
        const std::vector<Values> actual{matrix.weights.to_vector<double>(),
                                         matrix.momentum.to_vector<double>(),
                                         matrix.model.to_vector<double>()};
        if (expected.empty()) expected = actual;
        EXPECT_EQ(actual, expected) << str(states, " ", products, " ", length);
      }
    }
  }
}

// The mean of a momentum that is rounded by chance stays right: after many small gradients it is
// where f32 has it; rounding to nearest would leave it behind.
TEST(Muon, AMomentumInBf16_FollowsThatInF32) {
  const Rank rank;
  const int64_t n = 4096;
  const Muon muon(MuonOptions{}, 5);
  const HyperParameters hyper{.momentum = 0.99};
  const Tensor gradient = Tensor::full({n}, 1.0);
  const Tensor weights = Tensor::zeros({n});
  const Tensor direction = Tensor::empty({n}, DType::bf16);
  const auto mean_after = [&](DType states, uint64_t site) {
    const Tensor momentum = Tensor::zeros({n}, states);
    for (int64_t step = 1; step <= 300; ++step) {
      Update args{.weights = weights.view(), .gradient = gradient.view(), .step = step};
      args.site = site;
      args.states[0] = momentum.view();
      args.direction = direction.view();
      muon.direct(args, hyper, Context::current().compute());
    }
    return momentum.to_vector<double>();
  };
  const Values narrow = mean_after(DType::bf16, 1);
  const double expected = mean_after(DType::f32, 1)[0];
  EXPECT_NEAR(expected, 1.0 - std::pow(0.99, 300), 1e-5);
  double mean = 0.0;
  for (const double value : narrow) mean += value / static_cast<double>(n);
  // An element strays by a root of 50 (the memory of 0.99) roundings of 2^-9; 4096 of them by 1/64
  // of that: 2e-4, and five times as much.
  EXPECT_NEAR(mean, expected, 1e-3);
  EXPECT_NE(mean_after(DType::bf16, 2), narrow) << "another parameter has other random words";
}

TEST(Muon, Skip_LeavesTheMomentum) {
  const Rank rank;
  const Tensor momentum = Tensor::full({8}, 0.5);
  const Tensor gradient = Tensor::full({8}, std::numeric_limits<double>::quiet_NaN());
  const Tensor direction = Tensor::full({8}, 3.0, DType::bf16);
  const Tensor weights = Tensor::full({8}, 2.0);
  const Tensor skip = Tensor::full({1}, 1.0, DType::i32);
  Update args{.weights = weights.view(), .gradient = gradient.view(), .skip = skip.view()};
  args.states[0] = momentum.view();
  args.direction = direction.view();
  const Muon muon(MuonOptions{});
  muon.direct(args, kHyper, Context::current().compute());
  args.gradient = direction.view();
  muon.apply(args, kHyper, Context::current().compute());
  EXPECT_EQ(momentum.to_vector<double>(), Values(8, 0.5));
  EXPECT_EQ(direction.to_vector<double>(), Values(8, 3.0));
  EXPECT_EQ(weights.to_vector<double>(), Values(8, 2.0));
}

TEST(Muon, TakesMatricesWhoseNamesAreNotExcluded) {
  const Muon muon({.exclude = {"*router*", "h.0.*"}});
  const auto takes = [&](const std::string& name, const Shape& shape) {
    return muon.takes(autograd::Parameter(name, shape, autograd::Initializer::zeros()));
  };
  EXPECT_TRUE(takes("h.1.mlp.weight", {4, 6}));
  EXPECT_FALSE(takes("h.1.mlp.bias", {4}));
  EXPECT_FALSE(takes("h.1.mlp.weight", {1, 6}));
  EXPECT_FALSE(takes("h.1.mlp.weight", {6, 1}));
  EXPECT_FALSE(takes("h.1.conv.weight", {4, 6, 3}));
  EXPECT_FALSE(takes("h.1.router.weight", {4, 6}));
  EXPECT_FALSE(takes("h.0.mlp.weight", {4, 6}));
  // What a rank holds of a parameter decides nothing.
  autograd::Parameter shared("w", {4, 6}, autograd::Initializer::zeros());
  shared.set_slice(TensorSlice::of({4, 6}, 0, {4}, 0, 4));
  EXPECT_EQ(shared.shape(), (Shape{1, 6}));
  EXPECT_TRUE(muon.takes(shared));
}

TEST(Muon, FlopsAreThoseOfTheProducts) {
  const Muon muon(MuonOptions{});
  // X X^T and B X of the long side, A A of the short one.
  EXPECT_EQ(muon.flops(3, 100), 5 * (2 * 2 * 3 * 3 * 100 + 2 * 3 * 3 * 3));
  EXPECT_EQ(muon.flops(100, 3), muon.flops(3, 100));
  EXPECT_EQ(Muon({.steps = 3}).flops(3, 100), muon.flops(3, 100) / 5 * 3);
}

TEST(Muon, WithAdamW_NamesStatesOfBoth) {
  const MuonWithAdamW optimizer(MuonOptions{}, {.states = DType::bf16});
  EXPECT_EQ(optimizer.name(), "Muon");
  ASSERT_EQ(optimizer.num_states(), 2);
  EXPECT_EQ(optimizer.state_name(1), "exp_avg_sq");
  EXPECT_EQ(optimizer.state_dtype(), DType::bf16);
  EXPECT_TRUE(optimizer.has_scalars());
  const WholeRule* const rule = optimizer.whole_rule();
  ASSERT_NE(rule, nullptr);
  ASSERT_EQ(rule->num_states(), 1);
  EXPECT_EQ(rule->state_name(0), "momentum_buffer");
  EXPECT_EQ(rule->direction_dtype(DType::f32), DType::bf16);
  EXPECT_EQ(rule->direction_dtype(DType::f64), DType::f64);
  EXPECT_EQ(Muon({.products = DType::f32}).direction_dtype(DType::f32), DType::f32);
}

TEST(Muon, BadArguments) {
  const auto message = [](const auto& body) -> std::string {
    try {
      body();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message([] { Muon({.steps = 0}); }), HasSubstr("must lie in [1, 100), got 0"));
  EXPECT_THAT(message([] { Muon({.eps = 0.0}); }), HasSubstr("eps must be above 0"));
  EXPECT_THAT(message([] { Muon({.products = DType::f16}); }), HasSubstr("bf16 or f32, not f16"));
  EXPECT_THAT(message([] { MuonWithAdamW(MuonOptions{}, {.rule = kernels::UpdateRule::lion}); }),
              HasSubstr("AdamW updates what is no matrix"));
  const Rank rank;
  EXPECT_THAT(message([] {
                Muon(MuonOptions{}).direct({}, {.momentum = 1.0}, Context::current().compute());
              }),
              HasSubstr("momentum must lie in [0, 1), got 1"));
  const Tensor flat = Tensor::zeros({6});
  EXPECT_THAT(
      message([&] {
        Muon(MuonOptions{}).transform({.direction = flat.view()}, {}, Context::current().compute());
      }),
      HasSubstr("a matrix is [rows, columns], not [6]"));
}

}  // namespace muon_test
}  // namespace zinc::optim
