// Results that backward makes again: the same bits, less memory between the passes.
#include "autograd/remade.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/swiglu.h"
#include "autograd/ops/unary.h"
#include "autograd/recompute.h"
#include "core/error.h"
#include "tests/autograd/rank.h"
#include "tests/autograd/train_once.h"

namespace zinc::autograd {
namespace remade_test {

using testing::random_tensor;
using testing::Rank;
using testing::train_once;
using testing::TrainedOnce;
using Values = std::vector<double>;

constexpr int64_t kRows = 8, kCols = 64;

TEST(Remade, Model_HasTheSameBitsAndALowerPeak) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const TrainedOnce kept = train_once({.dtype = dtype});
    const TrainedOnce remade = train_once({.dtype = dtype}, {}, true);
    EXPECT_EQ(remade, kept) << name_of(dtype);
    EXPECT_LT(remade.peak, kept.peak) << name_of(dtype);
  }
}

TEST(Remade, BesideRecomputation_HasTheSameBits) {
  const TrainedOnce kept = train_once({});
  EXPECT_EQ(train_once({.recompute_inner = true}, {}, true), kept);
  const TrainedOnce blocks = train_once({.recompute_blocks = true});
  const TrainedOnce both = train_once({.recompute_blocks = true}, {}, true);
  EXPECT_EQ(both, kept);
  EXPECT_LE(both.peak, blocks.peak);
}

TEST(Remade, ShuffledExecution_HasTheSameBits) {
  const TrainedOnce kept = train_once({});
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_EQ(train_once({}, testing::shuffled(seed), true), kept) << "seed " << seed;
  }
}

// One op whose result a product saves: y = op(x), then y w.
struct Op {
  std::string name;
  std::function<Tensor(const Tensor& x)> apply;
  int64_t cols = kCols;  // of the result
};

Tensor norm_weight(uint64_t seed, DType dtype = DType::f32) {
  Tensor weight = random_tensor(Shape{kCols}, seed, dtype, 0.5, 1.5);
  requires_grad_(weight);
  return weight;
}

Tensor product_weight(int64_t out, int64_t in, uint64_t seed, DType dtype = DType::f32) {
  Tensor weight = random_tensor(Shape{out, in}, seed, dtype);
  requires_grad_(weight);
  return weight;
}

std::vector<Op> ops(DType dtype) {
  const Tensor gamma = norm_weight(2, dtype);
  const Tensor beta = norm_weight(3, dtype);
  const Tensor wide = product_weight(kCols, kCols, 4, dtype);
  const auto with = [wide](Activation activation) {
    return [wide, activation](const Tensor& x) {
      return linear(x, wide, {}, {.activation = activation});
    };
  };
  return {
      {"layernorm", [=](const Tensor& x) { return layernorm(x, gamma, beta, 1e-5); }},
      {"layernorm without weights", [](const Tensor& x) { return layernorm(x, {}, {}, 1e-5); }},
      {"rmsnorm", [=](const Tensor& x) { return rmsnorm(x, gamma, 1e-6); }},
      {"residual layernorm",
       [=](const Tensor& x) { return residual_layernorm(x, x, gamma, beta, 1e-5).normed; }},
      {"residual rmsnorm",
       [=](const Tensor& x) { return residual_rmsnorm(x, x, gamma, 1e-6).normed; }},
      {"gelu", [](const Tensor& x) { return gelu(x, GeluKind::erf); }},
      {"silu", [](const Tensor& x) { return silu(x); }},
      {"swiglu", [](const Tensor& x) { return swiglu(x, x); }},
      {"packed swiglu", [](const Tensor& x) { return swiglu(x); }, kCols / 2},
      {"product with gelu", with(Activation::gelu_tanh)},
      {"product with gelu of erf", with(Activation::gelu_erf)},
      {"product with silu", with(Activation::silu)},
  };
}

struct Gradients {
  std::vector<Values> of;
  int64_t live = 0;  // bytes of activations between the passes
};

Gradients run_op(const Op& op, bool remakes, DType dtype = DType::f32) {
  Tensor x = random_tensor(Shape{kRows, kCols}, 1, dtype);
  requires_grad_(x);
  const Tensor w = product_weight(5, op.cols, 6, dtype);
  const auto live = [] {
    return Context::current().allocator().report().at(Tier::device, Label::activations).live;
  };
  const int64_t before = live();
  const RemakeScope scope(remakes);
  Tensor y;
  {
    const Tensor result = op.apply(x);
    y = linear(result, w, {});
    y = add(y, linear(result, w, {}));  // a second one saves the same result
  }
  Gradients gradients;
  gradients.live = live() - before;
  backward(sum(y));
  gradients.of = {grad(x).to_vector<double>(), grad(w).to_vector<double>()};
  return gradients;
}

class RemadeTest : public ::testing::Test {
 protected:
  Rank rank_;
};

TEST_F(RemadeTest, EachOp_KeepsItsOperandsAlone) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const size_t count = ops(dtype).size();
    for (size_t i = 0; i < count; ++i) {
      // Weights of their own for each run: gradients stay with the weights.
      const Gradients kept = run_op(ops(dtype)[i], false, dtype);
      const Op op = ops(dtype)[i];
      const Gradients remade = run_op(op, true, dtype);
      EXPECT_EQ(remade.of, kept.of) << op.name << ", " << name_of(dtype);
      EXPECT_EQ(kept.live - remade.live, kRows * op.cols * size_of(dtype))
          << op.name << ", " << name_of(dtype);
    }
  }
}

TEST_F(RemadeTest, ChainOfResults_IsMadeFromItsFirstOperand) {
  const auto chain = [](const Tensor& x) { return tanh(gelu(exp(x))); };
  const Gradients kept = run_op({"chain", chain}, false);
  const Gradients remade = run_op({"chain", chain}, true);
  EXPECT_EQ(remade.of, kept.of);
  EXPECT_EQ(kept.live - remade.live, 3 * kRows * kCols * 4);
}

TEST_F(RemadeTest, ResultThatWasFilledBeforeItWasSaved_IsKept) {
  const auto gradient = [](bool remakes) {
    Tensor x = random_tensor(Shape{kRows, kCols}, 1);
    requires_grad_(x);
    const Tensor w = product_weight(5, kCols, 6);
    const RemakeScope scope(remakes);
    Tensor y = gelu(x);
    y.fill(0.5);
    backward(sum(linear(y, w, {})));
    return grad(w).to_vector<double>();
  };
  EXPECT_EQ(gradient(true), gradient(false));
  EXPECT_EQ(gradient(true), Values(5 * kCols, 0.5 * kRows));
}

TEST_F(RemadeTest, ViewOfAResult_IsKept) {
  const Op op{"view", [](const Tensor& x) { return reshape(gelu(x), Shape{2, kRows / 2, kCols}); }};
  const Gradients kept = run_op(op, false);
  const Gradients remade = run_op(op, true);
  EXPECT_EQ(remade.of, kept.of);
  EXPECT_EQ(remade.live, kept.live);
}

// The place of inputs does not change the order of work: one call is computed again at a time.
TEST_F(RemadeTest, InputOfRecompute_IsKept) {
  class Store final : public SavedTensorStore {
   public:
    std::unique_ptr<SavedSlot> save(const Tensor& tensor) override {
      class Slot final : public SavedSlot {
       public:
        explicit Slot(Tensor tensor) : tensor_(std::move(tensor)) {}
        Tensor restore() override { return tensor_; }

       private:
        Tensor tensor_;
      };
      return std::make_unique<Slot>(tensor);
    }
  } store;
  std::vector<Values> gradients;
  for (SavedTensorStore* to :
       {static_cast<SavedTensorStore*>(nullptr), static_cast<SavedTensorStore*>(&store)}) {
    Tensor x = random_tensor(Shape{kRows, kCols}, 1);
    requires_grad_(x);
    const Tensor w = product_weight(kCols, kCols, 6);
    const RemakeScope scope(true);
    const RecomputeInputScope inputs(to);
    std::vector<int> calls;
    Tensor y = x;
    for (int i = 0; i < 3; ++i) {
      y = recompute(
          [&calls, w, i](const Tensor& in) {
            calls.push_back(i);
            return gelu(linear(in, w, {}));
          },
          y);
    }
    backward(sum(y));
    EXPECT_EQ(calls, (std::vector{0, 1, 2, 2, 1, 0}));
    gradients.push_back(grad(x).to_vector<double>());
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST_F(RemadeTest, RetainedGraph_GivesTheSameGradientsTwice) {
  Tensor x = random_tensor(Shape{kRows, kCols}, 1);
  requires_grad_(x);
  const Tensor w = product_weight(5, kCols, 6);
  const RemakeScope scope(true);
  const Tensor y = sum(linear(gelu(x), w, {}));
  backward(y, 1.0, {.retain_graph = true});
  const Values once = grad(w).to_vector<double>();
  zero_grad(w);
  backward(y);
  EXPECT_EQ(grad(w).to_vector<double>(), once);
}

}  // namespace remade_test
}  // namespace zinc::autograd
