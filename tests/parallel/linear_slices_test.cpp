// A linear layer in fixed slices: its gradients, and its result on one rank. tests/zero compares
// ranks.
#include "parallel/linear_slices.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "autograd/ops/linear.h"
#include "autograd/weight.h"
#include "core/error.h"
#include "parallel/tensor_ranks.h"
#include "tests/autograd/gradcheck.h"
#include "tests/autograd/rank.h"

namespace zinc::parallel {
namespace linear_slices_test {

using autograd::Activation;
using autograd::LinearOptions;
using autograd::WeightLayout;
using Operands = std::span<const autograd::Weight>;
using Results = std::vector<Tensor>;

// All three slices of a layer, on one rank.
class LinearSlices : public ::testing::TestWithParam<WeightLayout> {
 protected:
  LinearSlices() { ranks_->fix_slices(3); }

  // Of 7 outputs in two sections, or of 5 inputs.
  LinearOptions options(bool of_inputs, Activation activation = Activation::none) {
    const std::vector<int64_t> sections =
        of_inputs ? std::vector<int64_t>{5} : std::vector<int64_t>{4, 3};
    return {.layout = GetParam(),
            .activation = activation,
            .slices = ranks_->slices_of(sections, of_inputs)};
  }
  Shape weight_shape() const {
    return GetParam() == WeightLayout::out_in ? Shape{7, 5} : Shape{5, 7};
  }
  testing::GradcheckOperand weight() const { return {.shape = weight_shape(), .is_weight = true}; }

  std::unique_ptr<nn::TensorRanks> ranks_ = make_tensor_ranks(nullptr);
};

TEST_P(LinearSlices, OfOutputs_GiveTheGradientsOfTheLayer) {
  testing::check_gradients({"linear",
                            "in slices of outputs",
                            {{.shape = {2, 3, 5}}, weight(), {.shape = {7}, .is_weight = true}},
                            [options = options(false, Activation::gelu_tanh)](Operands v) {
                              return Results{autograd::linear(v[0].tensor(), v[1], v[2], options)};
                            }});
}

TEST_P(LinearSlices, OfInputs_GiveTheGradientsOfTheLayer) {
  testing::check_gradients({"linear",
                            "in slices of inputs",
                            {{.shape = {2, 3, 5}}, weight()},
                            [options = options(true)](Operands v) {
                              return Results{autograd::linear(v[0].tensor(), v[1], {}, options)};
                            }});
}

TEST_P(LinearSlices, GiveTheResultOfTheLayer) {
  const testing::Rank rank;
  const Tensor x = testing::random_tensor({2, 3, 5}, 1, DType::f64);
  const Tensor w = testing::random_tensor(weight_shape(), 2, DType::f64);
  const Tensor whole = autograd::linear(x, w, {}, {.layout = GetParam()});
  for (const bool of_inputs : {false, true}) {
    const Tensor sliced = autograd::linear(x, w, {}, options(of_inputs));
    const auto expected = whole.to_vector<double>(), got = sliced.to_vector<double>();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(got[i], expected[i], 1e-14) << of_inputs;  // sums of 5 terms below 1, in f64
    }
  }
}

TEST_P(LinearSlices, RefuseWhatComesBehindTheirSum) {
  const testing::Rank rank;
  const Tensor x = testing::random_tensor({3, 5}, 1);
  const Tensor w = testing::random_tensor(weight_shape(), 2);
  const Tensor bias = testing::random_tensor({7}, 3), addend = testing::random_tensor({3, 7}, 4);
  EXPECT_THROW(autograd::linear(x, w, bias, options(true)), InvalidArgument);
  EXPECT_THROW(autograd::linear(x, w, {}, options(true, Activation::silu)), InvalidArgument);
  LinearOptions onto_sum = options(false);
  onto_sum.addend = addend;
  EXPECT_THROW(autograd::linear(x, w, {}, onto_sum), InvalidArgument);
  EXPECT_THROW(autograd::linear(x, {{w}, {w}}, options(false)), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Layouts, LinearSlices,
                         ::testing::Values(WeightLayout::out_in, WeightLayout::in_out));

}  // namespace linear_slices_test
}  // namespace zinc::parallel
