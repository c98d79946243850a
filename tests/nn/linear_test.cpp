// Linear layers that add to a residual stream.
#include "nn/linear.h"

#include <gtest/gtest.h>

#include "autograd/mode.h"
#include "autograd/ops/binary.h"
#include "nn/dropout.h"
#include "nn/lora.h"
#include "nn/norm.h"
#include "tests/autograd/rank.h"

namespace zinc::nn {
namespace linear_test {

using zinc::testing::random_tensor;
using zinc::testing::Rank;

struct Branch : Module {
  Branch()
      : proj(*this, "proj", LinearOptions{.in = 5, .out = 4, .bias = false}),
        dropout(*this, "dropout", 0.5),
        layer_norm(*this, "layer_norm", LayerNormOptions{.features = 4}),
        rms_norm(*this, "rms_norm", RMSNormOptions{.features = 4}) {}
  Linear proj;
  Dropout dropout;
  LayerNorm layer_norm;
  RMSNorm rms_norm;
};

void expect_near(const Tensor& actual, const Tensor& expected) {
  const double tolerance = actual.dtype() == DType::f64 ? 1e-14 : 2e-6;
  const auto values = actual.to_vector<double>(), wanted = expected.to_vector<double>();
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted[i], tolerance) << i;
}

// Makes each value from the same random numbers.
template <class Make>
auto made(Rank& rank, const Make& make) {
  rank.context.random().set_position(0, 0);
  return make();
}

TEST(Linear, AddsToAResidualStream_InItsProductOrBehindIt) {
  Rank rank;
  const autograd::NoGrad no_grad;
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const bool adapted : {false, true}) {
      for (const bool drops : {false, true}) {
        Branch branch;
        if (adapted) add_lora(branch, {.rank = 2, .targets = {"proj"}});
        branch.set_dtype(dtype);
        if (adapted) {
          branch.proj.adapter()->up().weight().data().copy_from(random_tensor({4, 2}, 3, dtype));
        }
        branch.train(drops);
        const Tensor x = random_tensor({3, 5}, 1, dtype),
                     residual = random_tensor({3, 4}, 2, dtype);
        Dropout* dropout = &branch.dropout;
        const ResidualSum sum =
            made(rank, [&] { return branch.proj.forward_onto(residual, x, dropout); });
        EXPECT_EQ(sum.term.defined(), adapted || drops);
        const Tensor expected = made(rank, [&] {
          return autograd::add(residual, dropout->forward(branch.proj.forward(x)));
        });
        expect_near(sum.value(), expected);
        for (const auto& normed : {branch.layer_norm.forward(sum), branch.rms_norm.forward(sum)}) {
          expect_near(normed.sum, expected);
        }
        expect_near(branch.layer_norm.forward(sum).normed, branch.layer_norm.forward(expected));
        expect_near(branch.rms_norm.forward(sum).normed, branch.rms_norm.forward(expected));
      }
    }
  }
}

struct Layers : Module {
  explicit Layers(bool bias = false)
      : a(*this, "a", LinearOptions{.in = 16, .out = 8, .bias = bias}),
        b(*this, "b", LinearOptions{.in = 16, .out = 5, .bias = bias}) {}
  Linear a, b;
};

TEST(Linear, OfOneInput_AreOneProduct) {
  Rank rank;
  const autograd::NoGrad no_grad;
  for (const bool bias : {false, true}) {
    Layers layers(bias);
    const Tensor x = random_tensor({2, 3, 16}, 1, DType::f32);
    const Tensor both = Linear::as_one_product(x, {&layers.a, &layers.b});
    ASSERT_EQ(both.shape(), (Shape{2, 3, 13}));
    expect_near(both.narrow_view(-1, 0, 8), layers.a.forward(x));
    expect_near(both.narrow_view(-1, 8, 5), layers.b.forward(x));
  }
}

TEST(Linear, OfOneInput_AreNotOneProduct_WhereTheyDiffer) {
  Rank rank;
  const autograd::NoGrad no_grad;
  const Tensor x = random_tensor({3, 16}, 1, DType::f32);
  const auto is_one = [&](Layers& layers) {
    return Linear::as_one_product(x, {&layers.a, &layers.b}).defined();
  };
  Layers frozen, adapted, narrow;
  frozen.b.weight().set_requires_grad(false);
  EXPECT_FALSE(is_one(frozen));
  add_lora(adapted, {.rank = 2, .targets = {"a"}});
  EXPECT_FALSE(is_one(adapted));
  narrow.a.set_fp8(true);
  EXPECT_FALSE(is_one(narrow));
  struct Mixed : Module {
    Linear a{*this, "a", LinearOptions{.in = 16, .out = 8, .bias = false}};
    Linear biased{*this, "biased", LinearOptions{.in = 16, .out = 8}};
    Linear active{
        *this, "active",
        LinearOptions{.in = 16, .out = 8, .bias = false, .activation = autograd::Activation::silu}};
    Linear transposed{
        *this, "transposed",
        LinearOptions{.in = 16, .out = 8, .bias = false, .layout = autograd::WeightLayout::in_out}};
  } mixed;
  for (Linear* other : {&mixed.biased, &mixed.active, &mixed.transposed}) {
    EXPECT_FALSE(Linear::as_one_product(x, {&mixed.a, other}).defined()) << other->path();
  }
}

}  // namespace linear_test
}  // namespace zinc::nn
