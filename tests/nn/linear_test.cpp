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

// Of the same random numbers each.
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

}  // namespace linear_test
}  // namespace zinc::nn
