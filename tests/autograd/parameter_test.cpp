#include "autograd/parameter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/unary.h"
#include "autograd/ops/value.h"
#include "tests/autograd/rank.h"
#include "tests/autograd/recording_source.h"

namespace zinc::autograd {
namespace parameter_test {

using testing::random_tensor;
using testing::Rank;
using testing::RecordingSource;
using Events = std::vector<std::string>;

class ParameterTest : public ::testing::Test {
 protected:
  Rank rank_;
};

TEST_F(ParameterTest, Values_AreMadeAtFirstUseFromTheContextsSeed) {
  Parameter parameter("w", Shape{3, 5}, Initializer::normal(0.02));
  EXPECT_FALSE(parameter.has_data());
  EXPECT_EQ(rank_.live(), 0);
  const std::vector<float> values = parameter.data().to_vector<float>();
  std::vector<float> expected(15);
  initialize_range(parameter.initializer(), 0, "w", 0,
                   View(expected.data(), DType::f32, Shape{15}));
  EXPECT_EQ(values, expected);
  EXPECT_EQ(rank_.live(Label::parameters), kBlockAlignment);
}

TEST_F(ParameterTest, Properties_DefaultAndFreezeOnceThereAreValues) {
  Parameter matrix("m", Shape{2, 2}, Initializer::ones());
  Parameter vector("v", Shape{2}, Initializer::ones());
  EXPECT_TRUE(matrix.decays());
  EXPECT_FALSE(vector.decays());
  matrix.set_dtype(DType::bf16);
  matrix.set_initializer(Initializer::zeros());
  EXPECT_EQ(matrix.data().dtype(), DType::bf16);
  EXPECT_THROW(matrix.set_dtype(DType::f32), InvalidArgument);
  EXPECT_THROW(matrix.set_requires_grad(false), InvalidArgument);
  EXPECT_THROW(matrix.set_initializer(Initializer::ones()), InvalidArgument);
  EXPECT_THROW(Parameter("i", Shape{2}, Initializer::zeros(), DType::i32), InvalidArgument);
}

TEST_F(ParameterTest, AnotherSource_TakesOverValuesAndRefusesData) {
  Parameter parameter("w", Shape{2, 2}, Initializer::ones());
  parameter.data();
  RecordingSource source;
  parameter.set_source(source);
  EXPECT_EQ(rank_.live(Label::parameters), 0);
  EXPECT_THROW(parameter.data(), InvalidArgument);
  EXPECT_THROW(parameter.set_dtype(DType::bf16), InvalidArgument);
  parameter.reset_source();
  EXPECT_EQ(parameter.data().to_vector<double>(), (std::vector<double>{1, 1, 1, 1}));
}

TEST_F(ParameterTest, ResidentGradient_AccumulatesUntilZeroGrad) {
  Parameter w("w", Shape{3, 2}, Initializer::normal(1.0));
  const Tensor x = random_tensor(Shape{4, 2}, 1);
  backward(sum(linear(x, w)));
  const auto once = w.grad()->to_vector<double>();
  backward(sum(linear(x, w)));
  const auto twice = w.grad()->to_vector<double>();
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], 2 * once[i]);
  EXPECT_EQ(rank_.live(Label::gradients), kBlockAlignment);
  w.zero_grad();
  EXPECT_EQ(rank_.live(Label::gradients), 0);
  backward(sum(linear(x, w)));
  EXPECT_EQ(w.grad()->to_vector<double>(), once);
}

TEST_F(ParameterTest, FrozenParameter_GetsNoGradient) {
  Parameter w("w", Shape{3, 2}, Initializer::normal(1.0));
  w.set_requires_grad(false);
  Parameter b("b", Shape{3}, Initializer::zeros());
  backward(sum(linear(random_tensor(Shape{4, 2}, 1), w, b)));
  EXPECT_FALSE(w.grad().has_value());
  EXPECT_EQ(b.grad()->to_vector<double>(), (std::vector<double>{4, 4, 4}));
}

// h = x w1 + b1; loss = sum(h w1 + h w2): w1 contributes twice, the last time where it was used
// first.
TEST_F(ParameterTest, GradientDone_ComesOnceAfterTheLastContribution) {
  RecordingSource source;
  Parameter w1("w1", Shape{3, 3}, Initializer::normal(1.0));
  Parameter b1("b1", Shape{3}, Initializer::zeros());
  Parameter w2("w2", Shape{3, 3}, Initializer::normal(1.0));
  for (Parameter* p : {&w1, &b1, &w2}) p->set_source(source);
  const Tensor h = linear(random_tensor(Shape{2, 3}, 1), w1, b1);
  const Tensor left = linear(h, w1);
  const Tensor right = linear(h, w2);
  const Tensor loss = sum(add(left, right));
  source.events.clear();
  backward(loss);
  EXPECT_EQ(source.events, (Events{"begin", "gradient w2", "acquire w2", "release w2", "done w2",
                                   "gradient w1", "acquire w1", "release w1", "gradient b1",
                                   "gradient w1 accumulate", "done w1", "done b1", "end"}));
}

TEST_F(ParameterTest, Forward_HoldsParametersOnlyWhileTheOpIsIssued) {
  RecordingSource source;
  Parameter w("w", Shape{3, 3}, Initializer::normal(1.0));
  w.set_source(source);
  const Tensor y = linear(random_tensor(Shape{2, 3}, 1), w);
  EXPECT_EQ(source.events, (Events{"acquire w", "release w"}));
  EXPECT_EQ(source.num_guards, 0);
}

TEST_F(ParameterTest, ContributionThatIsZero_StillGetsAGradientAndDone) {
  RecordingSource source;
  Parameter gamma("gamma", Shape{3}, Initializer::ones());
  gamma.set_source(source);
  Tensor x = random_tensor(Shape{2, 3}, 1);
  requires_grad_(x);
  // Only the sum is used: no gradient reaches the norm itself.
  const auto [total, normed] = residual_rmsnorm(x, x, gamma);
  source.events.clear();
  backward(sum(total));
  EXPECT_EQ(source.events, (Events{"begin", "gradient gamma", "done gamma", "end"}));
  EXPECT_EQ(source.gradients.at("gamma").to_vector<double>(), (std::vector<double>{0, 0, 0}));
}

TEST_F(ParameterTest, EverySource_GetsBeginAndEndOnce) {
  RecordingSource a;
  RecordingSource b;
  Parameter w1("w1", Shape{3, 3}, Initializer::normal(1.0));
  Parameter w2("w2", Shape{3, 3}, Initializer::normal(1.0));
  Parameter w3("w3", Shape{3, 3}, Initializer::normal(1.0));
  w3.set_requires_grad(false);
  w1.set_source(a);
  w2.set_source(a);
  w3.set_source(b);
  const Tensor loss = sum(linear(linear(linear(random_tensor(Shape{2, 3}, 1), w1), w2), w3));
  a.events.clear();
  b.events.clear();
  backward(loss);
  EXPECT_EQ(std::count(a.events.begin(), a.events.end(), "begin"), 1);
  EXPECT_EQ(a.events.back(), "end");
  EXPECT_EQ(b.events, (Events{"begin", "acquire w3", "release w3", "end"}));
}

TEST_F(ParameterTest, TiedParameter_AddsBothGradients) {
  Parameter table("table", Shape{5, 3}, Initializer::normal(1.0), DType::f64);
  const Tensor ids = testing::ids_tensor({1, 4, 1}, Shape{3});
  backward(sum(square(linear(embedding(ids, table), table))));
  const auto tied = table.grad()->to_vector<double>();

  Parameter first("table", Shape{5, 3}, Initializer::normal(1.0), DType::f64);
  Parameter second("table", Shape{5, 3}, Initializer::normal(1.0), DType::f64);
  backward(sum(square(linear(embedding(ids, first), second))));
  const auto a = first.grad()->to_vector<double>();
  const auto b = second.grad()->to_vector<double>();
  for (size_t i = 0; i < tied.size(); ++i)
    EXPECT_NEAR(tied[i], a[i] + b[i], 1e-12 * std::abs(tied[i]));
}

TEST_F(ParameterTest, Join_MovesResidentValuesTogetherOnce) {
  Parameter a("a", Shape{12, 64}, Initializer::normal(1.0)),
      b("b", Shape{4, 64}, Initializer::normal(1.0));
  Parameter* const both[] = {&a, &b};
  const auto lie_together = [&] {
    const ConstView first = a.data().view(), second = b.data().view();
    return static_cast<const std::byte*>(first.data()) + first.bytes() == second.data();
  };
  const auto values = [&] {
    return std::pair(a.data().to_vector<float>(), b.data().to_vector<float>());
  };
  const auto expected = values();
  {
    const Tensor held = a.data();
    Parameter::join_data(both);
    EXPECT_EQ(held.view().data(), a.data().view().data());  // nobody is left with old values
  }
  Parameter::join_data(both);
  EXPECT_TRUE(lie_together());
  EXPECT_EQ(values(), expected);
  EXPECT_EQ(rank_.live(Label::parameters), 16 * 64 * int64_t{sizeof(float)});
  const void* const place = a.data().view().data();
  Parameter::join_data(both);
  EXPECT_EQ(a.data().view().data(), place);
}

TEST_F(ParameterTest, Join_LeavesOthersValuesAlone) {
  Parameter small("small", Shape{3}, Initializer::ones()),
      next("next", Shape{16}, Initializer::ones());
  Parameter* const unaligned[] = {&small, &next};
  const void* const place = next.data().view().data();
  Parameter::join_data(unaligned);
  EXPECT_EQ(next.data().view().data(), place);
  RecordingSource source;
  Parameter served("served", Shape{16}, Initializer::ones());
  served.set_source(source);
  Parameter* const sources[] = {&next, &served};
  Parameter::join_data(sources);
  EXPECT_EQ(next.data().view().data(), place);
  EXPECT_EQ(source.num_guards, 0);
}

TEST_F(ParameterTest, Value_DoesNotPinTheParameter) {
  RecordingSource source;
  Parameter p("p", Shape{2}, Initializer::ones());
  p.set_source(source);
  const Tensor y = value(p);
  EXPECT_EQ(source.num_guards, 0);
  backward(sum(scale(y, 3)));
  EXPECT_EQ(source.gradients.at("p").to_vector<double>(), (std::vector<double>{3, 3}));
}

}  // namespace parameter_test
}  // namespace zinc::autograd
