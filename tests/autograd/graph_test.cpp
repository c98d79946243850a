#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/split.h"
#include "autograd/ops/swiglu.h"
#include "autograd/ops/unary.h"
#include "autograd/recompute.h"
#include "autograd/remade.h"
#include "tests/autograd/rank.h"

namespace zinc::autograd {
namespace graph_test {

using testing::random_tensor;
using testing::Rank;
using Values = std::vector<double>;

Tensor leaf(std::initializer_list<float> values) {
  Tensor tensor = Tensor::from(values, Shape{static_cast<int64_t>(values.size())});
  requires_grad_(tensor);
  return tensor;
}

Values values_of(const Tensor& tensor) { return tensor.to_vector<double>(); }

class Graph : public ::testing::Test {
 protected:
  Rank rank_;
};

TEST_F(Graph, Backward_OfAScalar_GivesTheLeafItsGradient) {
  const Tensor x = leaf({1, 2, 3});
  backward(sum(square(x)));
  EXPECT_EQ(values_of(grad(x)), (Values{2, 4, 6}));
}

TEST_F(Graph, Backward_WithSeed_ScalesTheGradient) {
  const Tensor x = leaf({1, 2, 3});
  backward(sum(square(x)), 8.0);
  EXPECT_EQ(values_of(grad(x)), (Values{16, 32, 48}));
}

TEST_F(Graph, Backward_WithGivenGradient_WeighsTheElements) {
  const Tensor x = leaf({1, 2, 3});
  backward(square(x), Tensor::from({1, 0, -1}, Shape{3}));
  EXPECT_EQ(values_of(grad(x)), (Values{2, 0, -6}));
}

TEST_F(Graph, Gradients_AddUpOverPassesUntilZeroGrad) {
  const Tensor x = leaf({1, 2});
  backward(sum(x));
  backward(sum(square(x)));
  EXPECT_EQ(values_of(grad(x)), (Values{3, 5}));
  zero_grad(x);
  EXPECT_FALSE(grad(x).defined());
  backward(sum(x));
  EXPECT_EQ(values_of(grad(x)), (Values{1, 1}));
}

TEST_F(Graph, FanOut_AddsTheContributions) {
  const Tensor x = leaf({3});
  const Tensor y = scale(x, 2);
  backward(sum(add(mul(y, y), add(y, scale(y, 10)))));  // 4 x^2 + 22 x
  EXPECT_EQ(values_of(grad(x)), (Values{8 * 3 + 22}));
}

// Both inputs of add() receive the same gradient tensor; what one of them does to its own must not
// reach the other.
TEST_F(Graph, FanOut_OfASharedGradient_IsNotAddedInPlace) {
  const Tensor x = leaf({1});
  const Tensor y = leaf({1});
  const Tensor a = scale(x, 1);
  const Tensor b = scale(y, 1);
  const Tensor more = scale(a, 5);  // recorded first: its contribution to a comes second
  const Tensor both = add(a, b);
  backward(sum(add(both, more)));
  EXPECT_EQ(values_of(grad(x)), (Values{6}));
  EXPECT_EQ(values_of(grad(y)), (Values{1}));
}

TEST_F(Graph, GradientHeldByTheUser_DoesNotChangeLater) {
  const Tensor x = leaf({1, 1});
  backward(sum(x));
  const Tensor first = grad(x);
  backward(sum(x));
  EXPECT_EQ(values_of(first), (Values{1, 1}));
  EXPECT_EQ(values_of(grad(x)), (Values{2, 2}));
}

TEST_F(Graph, SeedGradientOfTheUser_IsNotChanged) {
  const Tensor x = leaf({1, 2});
  const Tensor seed = Tensor::from({3, 4}, Shape{2});
  const Tensor y = exp(x);
  backward(add(tanh(y), y), seed);
  backward(neg(x), seed);
  EXPECT_EQ(values_of(seed), (Values{3, 4}));
}

TEST_F(Graph, SeveralForwards_BeforeTheirBackwards) {
  const Tensor x = leaf({2});
  const Tensor first = sum(square(x));
  const Tensor second = sum(mul(square(x), x));
  const Tensor third = sum(scale(x, 7));
  backward(second);
  EXPECT_EQ(values_of(grad(x)), (Values{12}));
  backward(first);
  backward(third);
  EXPECT_EQ(values_of(grad(x)), (Values{12 + 4 + 7}));
}

TEST_F(Graph, SeveralRoots_RunTheSharedPartOnce) {
  const Tensor x = leaf({1, 2});
  const Tensor shared = square(x);
  int runs = 0;
  register_hook(shared, [&](const Tensor&) {
    ++runs;
    return Tensor();
  });
  const std::vector<BackwardRoot> roots{{sum(shared), {}},
                                        {scale(shared, 3), Tensor::full(Shape{2}, 1)}};
  backward(roots);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(values_of(grad(x)), (Values{8, 16}));
}

TEST_F(Graph, RetainGraph_LetsBackwardPassTwice) {
  const Tensor x = leaf({1, 2});
  const Tensor loss = sum(exp(square(x)));
  backward(loss, 1.0, {.retain_graph = true});
  const Values once = values_of(grad(x));
  backward(loss);
  const Values twice = values_of(grad(x));
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], 2 * once[i]);
}

TEST_F(Graph, SecondBackward_WithoutRetain_ThrowsAndChangesNothing) {
  const Tensor x = leaf({1, 2});
  const Tensor shared = square(x);
  const Tensor first = sum(shared);
  const Tensor second = sum(exp(shared));
  backward(first);
  const Values before = values_of(grad(x));
  try {
    backward(second);
    FAIL() << "the graph was used up";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("retain_graph"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("square"), std::string::npos) << error.what();
  }
  EXPECT_EQ(values_of(grad(x)), before);
}

TEST_F(Graph, Mistakes_AreNamed) {
  const Tensor x = leaf({1, 2});
  const Tensor plain = Tensor::from({1, 2}, Shape{2});
  EXPECT_THROW(backward(square(x)), InvalidArgument);   // not a scalar
  EXPECT_THROW(backward(sum(plain)), InvalidArgument);  // no history
  EXPECT_THROW(backward(square(x), Tensor::zeros(Shape{3})), InvalidArgument);
  EXPECT_THROW(backward(square(x), Tensor::zeros(Shape{2}, DType::f64)), InvalidArgument);
  EXPECT_THROW(backward(square(x), Tensor()), InvalidArgument);
  EXPECT_THROW(add(x, cast(x, DType::bf16)), InvalidArgument);  // dtypes differ
  EXPECT_THROW(zero_grad(plain), InvalidArgument);
  Tensor made = square(x);
  EXPECT_THROW(requires_grad_(made), InvalidArgument);
  Tensor integers = Tensor::zeros(Shape{2}, DType::i64);
  EXPECT_THROW(requires_grad_(integers), InvalidArgument);
}

TEST_F(Graph, SavedTensorThatWasOverwritten_ThrowsInBackward) {
  Tensor x = leaf({1, 2});
  const Tensor loss = sum(square(x));
  x.fill(3);
  EXPECT_THROW(backward(loss), InvalidArgument);
}

TEST_F(Graph, NoGrad_RecordsNothing) {
  const Tensor x = leaf({1, 2});
  {
    const NoGrad no_grad;
    EXPECT_FALSE(square(x).requires_grad());
    {
      const EnableGrad enable;
      EXPECT_TRUE(square(x).requires_grad());
    }
    EXPECT_FALSE(square(x).requires_grad());
  }
  EXPECT_TRUE(square(x).requires_grad());
  EXPECT_FALSE(square(x.detach()).requires_grad());
}

TEST_F(Graph, Mode_BelongsToTheContext) {
  const NoGrad no_grad;
  Rank other;
  EXPECT_TRUE(gradients_enabled());
}

TEST_F(Graph, Hooks_SeeTheCompleteGradientInOrderAndMayReplaceIt) {
  const Tensor x = leaf({1, 2});
  const Tensor y = square(x);
  std::vector<Values> seen;
  register_hook(y, [&](const Tensor& gradient) {
    seen.push_back(values_of(gradient));
    return scale(gradient, 10);
  });
  register_hook(y, [&](const Tensor& gradient) {
    seen.push_back(values_of(gradient));
    return Tensor();
  });
  register_hook(x, [&](const Tensor& gradient) {
    seen.push_back(values_of(gradient));
    return Tensor();
  });
  backward(sum(add(y, scale(y, 2))));
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0], (Values{3, 3}));
  EXPECT_EQ(seen[1], (Values{30, 30}));
  EXPECT_EQ(seen[2], (Values{60, 120}));
  EXPECT_EQ(values_of(grad(x)), (Values{60, 120}));
}

TEST_F(Graph, Hook_ThatReturnsAnotherShape_Throws) {
  const Tensor x = leaf({1, 2});
  register_hook(x, [](const Tensor&) { return Tensor::zeros(Shape{3}); });
  EXPECT_THROW(backward(sum(x)), InvalidArgument);
  clear_hooks(x);
  backward(sum(x));
  EXPECT_EQ(values_of(grad(x)), (Values{1, 1}));
}

TEST_F(Graph, RetainGrad_KeepsTheGradientOfAResult) {
  const Tensor x = leaf({1, 2});
  const Tensor y = square(x);
  EXPECT_FALSE(grad(y).defined());
  retain_grad(y);
  backward(sum(exp(y)));
  const Values gradient = values_of(grad(y));
  EXPECT_FLOAT_EQ(static_cast<float>(gradient[0]), std::exp(1.0f));
  EXPECT_FLOAT_EQ(static_cast<float>(gradient[1]), std::exp(4.0f));
}

TEST_F(Graph, Backward_InsideAHook_RunsItsOwnPass) {
  const Tensor x = leaf({2});
  const Tensor other = leaf({5});
  register_hook(x, [&](const Tensor&) {
    const EnableGrad enable;
    backward(sum(square(other)));
    return Tensor();
  });
  backward(sum(square(x)));
  EXPECT_EQ(values_of(grad(x)), (Values{4}));
  EXPECT_EQ(values_of(grad(other)), (Values{10}));
}

TEST_F(Graph, OrderOfNodes_IsTheReverseOfRecording) {
  const Tensor x = leaf({1});
  std::vector<int> order;
  auto watched = [&](Tensor tensor, int number) {
    register_hook(tensor, [&order, number](const Tensor&) {
      order.push_back(number);
      return Tensor();
    });
    return tensor;
  };
  const Tensor a = watched(scale(x, 2), 0);
  const Tensor b = watched(scale(x, 3), 1);
  const Tensor c = watched(scale(b, 4), 2);
  const Tensor d = watched(scale(a, 5), 3);
  backward(sum(add(c, d)));
  EXPECT_EQ(order, (std::vector<int>{3, 2, 1, 0}));
}

TEST_F(Graph, VeryLongChain_IsFreedWithoutRecursion) {
  const Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = scale(y, 1);
  backward(sum(y));
  EXPECT_EQ(values_of(grad(x)), (Values{1}));
  y = {};  // overflows the stack where nodes free each other recursively
}

TEST_F(Graph, GradientMemory_IsFreedOnceUsed) {
  Tensor x = random_tensor(Shape{1024}, 1);
  requires_grad_(x);
  const int64_t before = rank_.live();
  {
    Tensor y = x;
    for (int i = 0; i < 8; ++i) y = tanh(y);
    backward(sum(y));
  }
  EXPECT_EQ(rank_.live(), before + 4096);  // the leaf's gradient
  zero_grad(x);
  EXPECT_EQ(rank_.live(), before);
}

TEST_F(Graph, SavedMemory_GoesAsBackwardPasses) {
  Tensor x = random_tensor(Shape{1024}, 1);
  requires_grad_(x);
  std::vector<Tensor> chain{x};
  for (int i = 0; i < 8; ++i) chain.push_back(tanh(chain.back()));
  const Tensor loss = sum(chain.back());
  std::vector<int64_t> live;
  for (size_t i = 1; i < chain.size(); ++i) {
    register_hook(chain[i], [&](const Tensor&) {
      live.push_back(rank_.live());
      return Tensor();
    });
  }
  chain.resize(1);
  backward(loss);
  ASSERT_EQ(live.size(), 8u);
  // Every step back frees one saved result of 4096 bytes; gradients are made in place.
  for (size_t i = 1; i < live.size(); ++i) EXPECT_EQ(live[i], live[i - 1] - 4096) << i;
}

TEST_F(Graph, SplitWithPlaces_DoesNotCopyAndMayBeRepeated) {
  Tensor x = random_tensor(Shape{3, 8}, 2);
  requires_grad_(x);
  const auto parts = split(x, {4, 4}, 1);
  EXPECT_EQ(parts[0].storage_id(), x.storage_id());
  const Tensor loss = sum(add(square(contiguous(parts[0])), contiguous(parts[1])));
  backward(loss, 1.0, {.retain_graph = true});
  const Values once = values_of(grad(x));
  backward(loss);
  const Values twice = values_of(grad(x));
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], 2 * once[i]);
}

TEST_F(Graph, BackwardInParts_StopsAtTheMarkAndEndsAsOnePassDoes) {
  const auto graph = [](const Tensor& x, int64_t& mark) {
    const Tensor middle = square(x);
    mark = last_recorded();
    return sum(square(middle));
  };
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = leaf({4, 5});
  int64_t mark_x = 0;
  int64_t mark_y = 0;
  BackwardInParts of_x(graph(x, mark_x), 2.0);
  BackwardInParts of_y(graph(y, mark_y), 1.0);
  of_x.run_back_to(mark_x);
  of_y.run_back_to(mark_y);
  EXPECT_FALSE(grad(x).defined());
  of_x.run_back_to(0);
  EXPECT_EQ(values_of(grad(x)), (Values{8, 64, 216}));
  EXPECT_FALSE(grad(y).defined());
  of_y.run_back_to(0);
  of_y.run_back_to(0);
  EXPECT_EQ(values_of(grad(y)), (Values{256, 500}));
}

// The second product adds to the first one's gradient before it rounds.
TEST_F(Graph, ProductsOfOneInput_AddTheirGradientsInF32) {
  constexpr int64_t kOut = 64, kIn = 40;
  uint32_t random = 1;
  std::vector<Tensor> weights;
  std::vector<Values> sums;  // of columns, exact
  for (int64_t w = 0; w < 2; ++w) {
    std::vector<double> values;
    Values sum(kIn);
    for (int64_t i = 0; i < kOut * kIn; ++i) {
      random = random * 1664525u + 1013904223u;
      values.push_back(0.5 + (random >> 25) / 256.0);
      sum[static_cast<size_t>(i % kIn)] += values.back();
    }
    weights.push_back(Tensor::from<double>(values, Shape{kOut, kIn}, DType::bf16));
    sums.push_back(sum);
  }
  Tensor x = random_tensor({1, kIn}, 3, DType::bf16);
  requires_grad_(x);
  const Tensor y0 = linear(x, weights[0]), y1 = linear(x, weights[1]);
  const Tensor y = add(y0, y1);
  backward(y, Tensor::full(y.shape(), 1.0, DType::bf16));
  const auto rounded = [&](const Values& values) {
    return values_of(Tensor::from<double>(values, Shape{kIn}, DType::bf16));
  };
  const Values last = rounded(sums[1]), first = rounded(sums[0]);
  Values wanted, of_rounded;
  for (size_t i = 0; i < kIn; ++i) {
    wanted.push_back(sums[0][i] + last[i]);
    of_rounded.push_back(first[i] + last[i]);
  }
  EXPECT_NE(rounded(wanted), rounded(of_rounded));
  EXPECT_EQ(values_of(grad(x)), rounded(wanted));
}

TEST_F(Graph, ProductOfAnInputWhoseGradientOthersHold_LeavesTheirs) {
  Tensor x = random_tensor({3, 4}, 1), z = random_tensor({3, 4}, 2);
  requires_grad_(x);
  requires_grad_(z);
  const Tensor weight = random_tensor({5, 4}, 3);
  const Tensor y = linear(x, weight);
  const Tensor s = add(x, z);  // hands one tensor to both, before the product comes
  backward(add(sum(s), sum(y)));
  EXPECT_EQ(values_of(grad(z)), Values(12, 1.0));
  const Values w = values_of(weight), gradient = values_of(grad(x));
  for (size_t i = 0; i < gradient.size(); ++i) {
    double column = 1.0;
    for (size_t row = 0; row < 5; ++row) column += w[row * 4 + i % 4];
    EXPECT_NEAR(gradient[i], column, 1e-5) << i;
  }
}

// The product that makes the gradient of an activation's result multiplies by its derivative. A
// hook must see that gradient, so with one it does not; and it must not where something else adds
// to it.
TEST_F(Graph, DerivativeWithinAProduct_ChangesNoBit) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const Activation activation :
         {Activation::gelu_tanh, Activation::gelu_erf, Activation::silu}) {
      const auto gradients = [&](bool hooks, bool twice) {
        Tensor x = random_tensor({7, 12}, 1, dtype);
        requires_grad_(x);
        const Tensor up = random_tensor({20, 12}, 2, dtype),
                     down = random_tensor({9, 20}, 3, dtype);
        Tensor inner = linear(x, up, {}, {.activation = activation});
        if (hooks) register_hook(inner, [](const Tensor&) { return Tensor(); });
        Tensor y = linear(inner, down);
        if (twice) y = add(y, linear(inner, random_tensor({9, 20}, 4, dtype)));
        backward(sum(square(y)));
        return values_of(grad(x));
      };
      EXPECT_EQ(gradients(false, false), gradients(true, false)) << name_of(dtype);
      EXPECT_EQ(gradients(false, true), gradients(true, true)) << name_of(dtype);
      EXPECT_NE(gradients(false, true), gradients(false, false));
    }
  }
}

// x, whose gradient is on its way row by row. `wait`: of a row.
class InRows final : public Node {
 public:
  explicit InRows(std::function<void(int64_t)> wait) : wait_(std::move(wait)) {}
  std::string_view name() const override { return "in_rows"; }
  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    const int64_t rows = dy.dim(0);
    pass.give(0, std::move(dy), {.num_parts = rows, .wait = wait_});
  }

 private:
  std::function<void(int64_t)> wait_;
};

Tensor in_rows(const Tensor& x, std::function<void(int64_t)> wait) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  y.copy_from(x);
  auto node = make_node<InRows>(std::move(wait));
  node->add_input(x);
  node->set_output(y);
  return y;
}

// Rows that are under way are used before anything is computed again.
TEST_F(Graph, DerivativeThatIsToBeComputedAgain_WaitsForRowsUnderWay) {
  std::string events;
  const Tensor gate = random_tensor({20, 6}, 2), up = random_tensor({20, 6}, 3);
  const Tensor down = random_tensor({9, 20}, 4);
  Tensor x = random_tensor({4, 6}, 1);
  requires_grad_(x);
  const TensorFunction block = [&](std::span<const Tensor> in) {
    events += "f";
    return std::vector{linear(swiglu(linear(in[0], gate), linear(in[0], up)), in[1])};
  };
  const Tensor y = recompute(block, {x, down}).front();
  backward(sum(in_rows(y, [&](int64_t) { events += "w"; })));
  EXPECT_EQ(events, "fwwwwf");
}

// The same of silu(gate) * up, with both or one of them trained, kept or made again.
TEST_F(Graph, DerivativesOfAGateWithinAProduct_ChangeNoBit) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const int trained : {1, 2, 3}) {
      const auto gradients = [&](bool hooks, bool remakes, bool rows = false) {
        const RemakeScope scope(remakes);
        Tensor gate = random_tensor({7, 20}, 1, dtype, -3, 3),
               up = random_tensor({7, 20}, 2, dtype, -3, 3),
               down = random_tensor({9, 20}, 3, dtype);
        requires_grad_(down);
        if ((trained & 1) != 0) requires_grad_(gate);
        if ((trained & 2) != 0) requires_grad_(up);
        Tensor inner = swiglu(scale(gate, 1.0), scale(up, 1.0));
        if (hooks) register_hook(inner, [](const Tensor&) { return Tensor(); });
        Tensor y = linear(inner, down);
        inner = {};
        if (rows) y = in_rows(y, [](int64_t) {});
        backward(sum(square(y)));
        std::vector<Values> values{values_of(grad(down))};
        if ((trained & 1) != 0) values.push_back(values_of(grad(gate)));
        if ((trained & 2) != 0) values.push_back(values_of(grad(up)));
        return values;
      };
      const auto expected = gradients(true, false);
      EXPECT_EQ(gradients(false, false), expected) << name_of(dtype) << " " << trained;
      EXPECT_EQ(gradients(false, true), expected) << name_of(dtype) << " " << trained;
      EXPECT_EQ(gradients(false, true, true), expected) << name_of(dtype) << " " << trained;
    }
  }
}

// The same where gate and up lie side by side: the product writes to a half of their gradient.
TEST_F(Graph, DerivativesOfAPackedGateWithinAProduct_ChangeNoBit) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const auto gradients = [&](bool hooks, bool remakes, bool rows = false) {
      const RemakeScope scope(remakes);
      Tensor gate_up = random_tensor({7, 40}, 1, dtype, -3, 3),
             down = random_tensor({9, 20}, 3, dtype);
      requires_grad_(down);
      requires_grad_(gate_up);
      Tensor inner = swiglu(scale(gate_up, 1.0));
      if (hooks) register_hook(inner, [](const Tensor&) { return Tensor(); });
      Tensor y = linear(inner, down);
      inner = {};
      if (rows) y = in_rows(y, [](int64_t) {});
      backward(sum(square(y)));
      return std::pair(values_of(grad(down)), values_of(grad(gate_up)));
    };
    const auto expected = gradients(true, false);
    EXPECT_EQ(gradients(false, false), expected) << name_of(dtype);
    EXPECT_EQ(gradients(false, true), expected) << name_of(dtype);
    EXPECT_EQ(gradients(false, true, true), expected) << name_of(dtype);
  }
}

TEST(GraphShuffled, AnyOrderOfExecution_GivesTheSameBits) {
  auto run = [](ContextOptions options) {
    Rank rank(std::move(options));
    Tensor x = random_tensor(Shape{6, 5}, 3);
    Tensor w = random_tensor(Shape{7, 5}, 4);
    requires_grad_(x);
    requires_grad_(w);
    const Tensor h = linear(x, w, {}, {.activation = Activation::silu});
    backward(sum(mul(h, add(h, exp(h)))));
    return std::pair(values_of(grad(x)), values_of(grad(w)));
  };
  const auto expected = run({.execution = ContextOptions::Execution::inline_all});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(run(testing::shuffled(seed)), expected) << "seed " << seed;
  }
}

}  // namespace graph_test
}  // namespace zinc::autograd
