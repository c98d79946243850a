#include "autograd/recompute.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/loss_scope.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/split.h"
#include "autograd/ops/unary.h"
#include "tests/autograd/rank.h"
#include "tests/autograd/train_once.h"

namespace zinc::autograd {
namespace recompute_test {

using testing::random_tensor;
using testing::Rank;
using testing::train_once;
using testing::TrainedOnce;
using Values = std::vector<double>;

TEST(Recompute, Blocks_GiveTheSameBitsAndOrderWithALowerPeak) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const TrainedOnce kept = train_once({.dtype = dtype});
    const TrainedOnce outer = train_once({.dtype = dtype, .recompute_blocks = true});
    const TrainedOnce nested =
        train_once({.dtype = dtype, .recompute_blocks = true, .recompute_inner = true});
    const TrainedOnce inner = train_once({.dtype = dtype, .recompute_inner = true});
    EXPECT_EQ(kept.done.size(), 28u);
    EXPECT_EQ(outer, kept) << name_of(dtype);
    EXPECT_EQ(nested, kept) << name_of(dtype);
    EXPECT_EQ(inner, kept) << name_of(dtype);
    EXPECT_LT(outer.peak, kept.peak) << name_of(dtype);
    EXPECT_LT(inner.peak, kept.peak) << name_of(dtype);
  }
}

TEST(Recompute, ShuffledExecution_GivesTheSameBits) {
  const TrainedOnce expected = train_once({});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(train_once({}, testing::shuffled(seed)), expected) << "seed " << seed;
    EXPECT_EQ(train_once({.recompute_blocks = true, .recompute_inner = seed % 2 == 1},
                         testing::shuffled(seed)),
              expected)
        << "recomputed, seed " << seed;
  }
}

class RecomputeTest : public ::testing::Test {
 protected:
  Rank rank_;
};

TEST_F(RecomputeTest, FunctionRunsOnceMoreAndOnlyWhenNeeded) {
  Tensor x = random_tensor(Shape{4}, 1);
  requires_grad_(x);
  int runs = 0;
  auto fn = [&](const Tensor& h) {
    ++runs;
    return tanh(exp(h));
  };
  const Tensor y = recompute(fn, x);
  EXPECT_EQ(runs, 1);
  backward(sum(y));
  EXPECT_EQ(runs, 2);
  recompute(fn, x);
  EXPECT_EQ(runs, 3);
  {
    const NoGrad no_grad;
    EXPECT_FALSE(recompute(fn, x).requires_grad());
  }
  EXPECT_EQ(runs, 4);
}

// The head makes its gradients with the loss, so the replay has to find the scope that is gone.
TEST_F(RecomputeTest, Replay_ComputesLossesAsTheFirstRunDid) {
  const Tensor labels = testing::ids_tensor({3, 0, 6}, {3});
  const auto gradient = [&](const LossOptions& options, bool again) {
    Tensor x = random_tensor(Shape{3, 5}, 1, DType::bf16, -2, 2);
    Tensor table = random_tensor(Shape{7, 5}, 2, DType::bf16, -2, 2);
    requires_grad_(x);
    const auto loss = [&](const Tensor& hidden) {
      return linear_cross_entropy(tanh(hidden), table, labels);
    };
    Tensor value;
    {
      const LossScope scope(options);
      value = again ? recompute(loss, x) : loss(x);
    }
    backward(value);
    return grad(x).to_vector<double>();
  };
  const LossOptions smoothed{.label_smoothing = 0.2}, narrow{.narrow_logits = true};
  EXPECT_EQ(gradient(smoothed, true), gradient(smoothed, false));
  EXPECT_EQ(gradient(narrow, true), gradient(narrow, false));
  EXPECT_NE(gradient(smoothed, false), gradient({}, false));
  EXPECT_NE(gradient(narrow, false), gradient({}, false));
}

// exp saves its input, which is the function's: nothing has to be computed again.
TEST_F(RecomputeTest, SavedInputs_NeedNoReplay) {
  Tensor x = random_tensor(Shape{4}, 1);
  requires_grad_(x);
  int runs = 0;
  const Tensor y = recompute(
      [&](const Tensor& h) {
        ++runs;
        return exp(h);
      },
      x);
  backward(sum(y));
  EXPECT_EQ(runs, 1);
  const Values gradient = grad(x).to_vector<double>();
  const Values expected = exp(x).to_vector<double>();
  for (size_t i = 0; i < gradient.size(); ++i)
    EXPECT_FLOAT_EQ(float(gradient[i]), float(expected[i]));
}

TEST_F(RecomputeTest, BetweenForwardAndBackward_OnlyInputsAndResultsLive) {
  Tensor x = random_tensor(Shape{1024}, 1);
  requires_grad_(x);
  const int64_t before = rank_.live();
  const Tensor y = recompute(
      [](const Tensor& h) {
        Tensor z = h;
        for (int i = 0; i < 8; ++i) z = tanh(z);
        return z;
      },
      x);
  EXPECT_EQ(rank_.live(), before + 4096);  // y
  const Tensor loss = sum(y);
  rank_.context.allocator().reset_peaks();
  backward(loss);
  EXPECT_EQ(rank_.live(), before + 2 * 4096 + kBlockAlignment);  // y, the gradient, the loss
  // The replay makes 8 results, of which the eighth is not saved but exists while the replay ends;
  // then x, y, loss, and one gradient.
  EXPECT_EQ(rank_.context.allocator().report().at(Tier::device).peak,
            before + 4096 + kBlockAlignment + 4096 + 8 * 4096);
}

TEST_F(RecomputeTest, ReplayedMemory_GoesAsBackwardPasses) {
  Tensor x = random_tensor(Shape{1024}, 1);
  requires_grad_(x);
  std::vector<int64_t> live;
  int runs = 0;
  const Tensor loss = sum(recompute(
      [&](const Tensor& h) {
        Tensor z = h;
        for (int i = 0; i < 8; ++i) {
          z = tanh(z);
          if (runs > 0) continue;
          register_hook(z, [&](const Tensor&) {
            live.push_back(rank_.live());
            return Tensor();
          });
        }
        ++runs;
        return z;
      },
      x));
  backward(loss);
  ASSERT_EQ(live.size(), 8u);
  // At the last hook but seven the replay has not run; from then on a result goes with every step.
  EXPECT_EQ(live[1], live[0] + 7 * 4096 - 4096);
  for (size_t i = 2; i < live.size(); ++i) EXPECT_EQ(live[i], live[i - 1] - 4096) << i;
}

// The last op saves nothing that is not there before: its kernel must not run again. Poisoned
// memory shows where a kernel did not run.
TEST(RecomputeTail, WhatFollowsTheLastSave_IsNotComputed) {
  const Rank rank({.memory = {.poison = true}});
  Tensor x = random_tensor(Shape{4}, 1);
  requires_grad_(x);
  std::vector<double> heads;
  std::vector<double> tails;
  const Tensor y = recompute(
      [&](const Tensor& h) {
        const Tensor head = tanh(h);
        const Tensor tail = scale(exp(head), 3);  // exp saves tanh(h), scale saves nothing
        heads.push_back(head.to_vector<double>()[0]);
        tails.push_back(tail.to_vector<double>()[0]);
        return tail;
      },
      x);
  backward(sum(y));
  ASSERT_EQ(tails.size(), 2u);
  EXPECT_EQ(heads[0], heads[1]);
  EXPECT_EQ(tails[0], y.to_vector<double>()[0]);
  EXPECT_TRUE(std::isnan(tails[1])) << tails[1];
}

TEST_F(RecomputeTest, Dropout_DrawsTheSameNumbersAndLeavesTheStateAlone) {
  auto run = [&](bool recomputed) {
    Tensor x = random_tensor(Shape{64}, 1);
    requires_grad_(x);
    rank_.context.random().set_position(1, 0);
    const DropoutOptions options{.probability = 0.5, .site = 9};
    dropout(x, options);  // the site has been used before
    auto fn = [&](const Tensor& h) { return mul(dropout(tanh(h), options), tanh(h)); };
    const Tensor y = recomputed ? recompute(fn, x) : fn(x);
    const Tensor after = dropout(x, options);  // the site is used again before backward
    backward(sum(add(y, after)));
    const Tensor next = dropout(x.detach(), options);
    return std::pair(grad(x).to_vector<double>(), next.to_vector<double>());
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_F(RecomputeTest, SeveralInputsAndResults_SomeWithoutGradient) {
  auto run = [&](bool recomputed) {
    Tensor a = random_tensor(Shape{3, 4}, 1);
    Tensor b = random_tensor(Shape{3, 4}, 2);
    const Tensor constant = random_tensor(Shape{4}, 3);
    requires_grad_(a);
    requires_grad_(b);
    const TensorFunction fn = [](std::span<const Tensor> in) {
      const Tensor product = mul(tanh(in[0]), in[1]);
      return std::vector<Tensor>{mul(product, in[2]), in[0], exp(product)};
    };
    const std::vector<Tensor> inputs{a, b, constant};
    const auto out = recomputed ? recompute(fn, inputs) : fn(inputs);
    backward(sum(add(out[0], mul(out[1], out[2]))));
    return std::pair(grad(a).to_vector<double>(), grad(b).to_vector<double>());
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_F(RecomputeTest, RetainGraph_ReplaysOnceForTwoPasses) {
  Tensor x = random_tensor(Shape{8}, 1);
  requires_grad_(x);
  int runs = 0;
  const Tensor loss = sum(recompute(
      [&](const Tensor& h) {
        ++runs;
        return tanh(tanh(h));
      },
      x));
  backward(loss, 1.0, {.retain_graph = true});
  const Values once = grad(x).to_vector<double>();
  backward(loss);
  const Values twice = grad(x).to_vector<double>();
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], 2 * once[i]);
  EXPECT_EQ(runs, 2);
}

TEST_F(RecomputeTest, FunctionThatDoesOtherWork_IsAnError) {
  Tensor x = random_tensor(Shape{8}, 1);
  requires_grad_(x);
  int runs = 0;
  auto loss_of = [&](auto second_run) {
    runs = 0;
    return sum(recompute(
        [&runs, second_run](const Tensor& h) {
          const Tensor y = tanh(exp(h));
          return ++runs == 1 ? tanh(y) : second_run(y);
        },
        x));
  };
  EXPECT_THROW(backward(loss_of([](const Tensor& y) { return y; })), InvalidArgument);
  EXPECT_THROW(backward(loss_of([](const Tensor& y) { return tanh(tanh(tanh(y))); })),
               InvalidArgument);
  EXPECT_THROW(backward(loss_of([](const Tensor& y) { return tanh(narrow(y, 0, 0, 4)); })),
               InvalidArgument);
}

// A store that counts: only the function's inputs reach the store outside.
class CountingStore final : public SavedTensorStore {
 public:
  std::unique_ptr<SavedSlot> save(const Tensor& tensor) override {
    ++saved;
    struct Slot final : SavedSlot {
      explicit Slot(Tensor t) : tensor(std::move(t)) {}
      Tensor restore() override { return tensor; }
      Tensor tensor;
    };
    return std::make_unique<Slot>(tensor);
  }
  int saved = 0;
};

TEST_F(RecomputeTest, OuterStore_ReceivesTheInputs) {
  CountingStore store;
  Tensor x = random_tensor(Shape{8}, 1);
  requires_grad_(x);
  Tensor loss;
  {
    const SavedTensorScope scope(store);
    loss = sum(recompute([](const Tensor& h) { return tanh(exp(tanh(h))); }, x));
  }
  EXPECT_EQ(store.saved, 1);
  backward(loss);
  EXPECT_EQ(store.saved, 1);
  EXPECT_TRUE(grad(x).defined());
}

TEST_F(RecomputeTest, Parameters_NeverReachTheStore) {
  CountingStore store;
  Parameter w("w", Shape{4, 4}, Initializer::normal(1.0));
  const SavedTensorScope scope(store);
  Tensor x = random_tensor(Shape{2, 4}, 1);
  requires_grad_(x);
  linear(x, w);
  EXPECT_EQ(store.saved, 1);  // x
}

}  // namespace recompute_test
}  // namespace zinc::autograd
