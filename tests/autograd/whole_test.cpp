#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "autograd/recorded_seed.h"
#include "tests/autograd/rank.h"
#include "tests/autograd/tiny_model.h"

namespace zinc::testing {
namespace whole_test {

using autograd::HeadGradient;
using autograd::Parameter;
using Values = std::vector<double>;

struct Pass {
  double loss = 0;
  std::vector<Values> gradients;
  MemoryReport memory;
  friend bool operator==(const Pass& a, const Pass& b) {
    return a.loss == b.loss && a.gradients == b.gradients;
  }
};

Pass run(TinyModelOptions options, ContextOptions context = {}, double seed = 1.0,
         double expected_seed = 1.0) {
  Rank rank(std::move(context));
  TinyModel model(options);
  const autograd::ExpectedLossGradient expected(expected_seed);
  Pass pass;
  for (int i = 0; i < 2; ++i) {
    rank.context.random().set_position(0, 0);
    for (Parameter* parameter : model.parameters()) parameter->zero_grad();
    const Tensor loss = model.loss();
    autograd::backward(loss, seed);
    pass.loss = loss.item();
  }
  pass.memory = rank.context.allocator().report();
  for (Parameter* parameter : model.parameters()) {
    pass.gradients.push_back(parameter->grad()->to_vector<double>());
  }
  return pass;
}

TEST(WholeModel, ShuffledExecution_GivesTheBitsOfInline) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Pass expected = run({.dtype = dtype});
    for (uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_EQ(run({.dtype = dtype}, shuffled(seed)), expected) << "seed " << seed;
    }
  }
}

TEST(WholeModel, ThreadCount_DoesNotMatter) {
  const Pass expected = run({}, {.num_threads = 1});
  EXPECT_EQ(run({}, {.num_threads = 2}), expected);
  EXPECT_EQ(run({}, {.num_threads = 4}), expected);
}

// Nothing reads memory that was not written.
TEST(WholeModel, PoisonedMemory_DoesNotMatter) {
  for (const bool recomputed : {false, true}) {
    const TinyModelOptions options{.dtype = DType::bf16, .recompute_blocks = recomputed};
    EXPECT_EQ(run(options, {.memory = {.poison = true}}), run(options));
  }
}

void expect_equal(const MemoryFigures& a, const MemoryFigures& b, const char* what) {
  EXPECT_EQ(a.live, b.live) << what;
  EXPECT_EQ(a.peak, b.peak) << what;
}

TEST(WholeModel, MetaContext_TakesTheSameMemory) {
  for (const bool recomputed : {false, true}) {
    for (const HeadGradient head : {HeadGradient::in_forward, HeadGradient::in_backward}) {
      const TinyModelOptions options{
          .dtype = DType::bf16, .recompute_blocks = recomputed, .head = head};
      const MemoryReport real = run(options).memory;
      const MemoryReport meta = run(options, {.device = {.meta = true}}).memory;
      const MemoryReport late = run(options, shuffled(7)).memory;
      EXPECT_GT(real.at(Tier::device).peak, 0);
      for (const MemoryReport& other : {meta, late}) {
        for (int label = 0; label < kNumLabels; ++label) {
          expect_equal(other.at(Tier::device, static_cast<Label>(label)),
                       real.at(Tier::device, static_cast<Label>(label)),
                       std::string(name_of(static_cast<Label>(label))).c_str());
        }
        expect_equal(other.at(Tier::device), real.at(Tier::device), "total");
      }
    }
  }
}

TEST(WholeModel, AfterBackward_OnlyParametersAndGradientsLive) {
  Rank rank;
  TinyModel model({});
  int64_t parameter_bytes = 0;
  for (Parameter* parameter : model.parameters()) {
    parameter->data();
    const int64_t bytes = parameter->numel() * size_of(parameter->dtype());
    parameter_bytes += (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  }
  EXPECT_EQ(rank.live(), parameter_bytes);
  autograd::backward(model.loss());
  EXPECT_EQ(rank.live(Label::activations), 0);
  EXPECT_EQ(rank.live(Label::workspace), 0);
  EXPECT_EQ(rank.live(Label::gradients), parameter_bytes);
  EXPECT_EQ(rank.live(), 2 * parameter_bytes);
}

TEST(WholeModel, WithoutGradients_NothingIsKept) {
  Rank rank;
  TinyModel model({});
  const autograd::NoGrad no_grad;
  model.loss();
  EXPECT_EQ(rank.live(Label::activations), 0);
  EXPECT_EQ(rank.live(Label::gradients), 0);
}

double relative_distance(const Values& a, const Values& b) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

// Both ways round dlogits and sums at their own places: per element a few ulp of f32, at most
// sqrt(V = 11) of them add up. In bf16 each way rounds the gradient once or twice: 2^-8 each.
TEST(WholeModel, HeadGradientInForward_EqualsInBackward) {
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::f32, 4e-6), std::pair(DType::bf16, 2e-2)}) {
    const Pass ready = run({.dtype = dtype, .dropout = 0, .head = HeadGradient::in_forward});
    const Pass late = run({.dtype = dtype, .dropout = 0, .head = HeadGradient::in_backward});
    EXPECT_NEAR(ready.loss, late.loss, 1e-6 * late.loss);
    for (size_t i = 0; i < ready.gradients.size(); ++i) {
      EXPECT_LT(relative_distance(ready.gradients[i], late.gradients[i]), tolerance) << i;
    }
  }
}

// A power of two passes through every op of the model without another rounding, in f32.
TEST(WholeModel, LossScale_ExpectedOrNot_ScalesEveryGradientExactly) {
  const Pass plain = run({});
  const Pass expected = run({}, {}, 1024.0, 1024.0);
  const Pass unexpected = run({}, {}, 1024.0, 1.0);
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    for (size_t k = 0; k < plain.gradients[i].size(); ++k) {
      ASSERT_EQ(expected.gradients[i][k], 1024.0 * plain.gradients[i][k]) << i << ", " << k;
      ASSERT_EQ(unexpected.gradients[i][k], 1024.0 * plain.gradients[i][k]) << i << ", " << k;
    }
  }
}

// The seeds include those that no float can represent.
TEST(WholeModel, SeedOnTheDevice_GivesTheBitsOfOneByValue) {
  for (const HeadGradient head : {HeadGradient::in_forward, HeadGradient::in_backward}) {
    const TinyModelOptions options{.dtype = DType::bf16, .recompute_blocks = true, .head = head};
    Rank rank;
    TinyModel model(options);
    autograd::RecordedSeed place;
    for (const double seed : {1024.0, 1000.0 / 7, 1000.0 / 7, 512.0 / 11}) {
      rank.context.random().set_position(0, 0);
      for (Parameter* parameter : model.parameters()) parameter->zero_grad();
      place.set(seed);
      Tensor loss;
      {
        const autograd::ExpectedLossGradient expected({.recorded = &place});
        loss = model.loss();
      }
      autograd::backward(loss, place.gradient());
      std::vector<Values> gradients;
      for (Parameter* parameter : model.parameters()) {
        gradients.push_back(parameter->grad()->to_vector<double>());
      }
      EXPECT_EQ(gradients, run(options, {}, seed, seed).gradients) << seed;
    }
  }
}

TEST(WholeModel, F32_FollowsF64) {
  const Pass single = run({.dropout = 0});
  const Pass twice = run({.dtype = DType::f64, .dropout = 0});
  EXPECT_NEAR(single.loss, twice.loss, 1e-5 * twice.loss);
  // Weights differ by their rounding to f32 already: 6e-8, through two blocks.
  for (size_t i = 0; i < single.gradients.size(); ++i) {
    EXPECT_LT(relative_distance(single.gradients[i], twice.gradients[i]), 1e-5) << i;
  }
}

}  // namespace whole_test
}  // namespace zinc::testing
