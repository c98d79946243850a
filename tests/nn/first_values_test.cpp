#include "nn/first_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/context.h"
#include "core/error.h"

namespace zinc::nn {
namespace first_values_test {

struct Tree : Module {
  Parameter held{*this, "held", {4, 2}, autograd::Initializer::zeros()};
  Parameter fresh{*this, "fresh", {3}, autograd::Initializer::ones()};
};

// Gives the value 7 to every element.
class Sevens : public WeightSource {
 public:
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    return parameter.whole_shape();
  }
  void read(const autograd::Parameter&, int64_t, View out) const override {
    std::fill_n(out.data_as<float>(), out.numel(), 7.0f);
  }
};

std::vector<float> read(const FirstValues& values, const Parameter& parameter, int64_t begin,
                        int64_t numel) {
  std::vector<float> out(static_cast<size_t>(numel));
  values.read(parameter, begin, View(out.data(), DType::f32, Shape{numel}, kCpu));
  return out;
}

class FirstValuesTest : public ::testing::Test {
 protected:
  FirstValuesTest() {
    const std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7};
    tree_.held.adopt_data(Tensor::from<float>(values, {4, 2}));
  }
  Context context_;
  const ContextScope scope_{context_};
  Tree tree_;
};

TEST_F(FirstValuesTest, AreHeldOnes_OrThoseOfTheInitialiser) {
  const FirstValues values(tree_, nullptr, 1);
  EXPECT_FALSE(tree_.held.has_data());  // the model may get another source now
  EXPECT_EQ(read(values, tree_.held, 3, 4), (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(read(values, tree_.fresh, 1, 2), (std::vector<float>{1, 1}));
}

TEST_F(FirstValuesTest, OfACallersSource_GoBeforeThem) {
  const Sevens sevens;
  const FirstValues values(tree_, &sevens, 1);
  EXPECT_EQ(read(values, tree_.held, 0, 2), (std::vector<float>{7, 7}));
}

TEST_F(FirstValuesTest, WhatWasHeldComesBack_UnlessItWasDropped) {
  { const FirstValues values(tree_, nullptr, 1); }
  ASSERT_TRUE(tree_.held.has_data());
  EXPECT_EQ(tree_.held.data().to_vector<float>().back(), 7.0f);
  EXPECT_FALSE(tree_.fresh.has_data());
  {
    FirstValues values(tree_, nullptr, 1);
    values.drop_held();
  }
  EXPECT_FALSE(tree_.held.has_data());
}

// Values that another engine has lost are not made anew silently.
TEST_F(FirstValuesTest, LostOnesNeedASource) {
  tree_.held.drop_data();
  tree_.held.lose_data("they are gone");
  EXPECT_THROW(FirstValues(tree_, nullptr, 1), InvalidArgument);
  const Sevens sevens;
  { const FirstValues values(tree_, &sevens, 1); }
  EXPECT_EQ(tree_.held.loss_of_data(), "they are gone");
}

}  // namespace first_values_test
}  // namespace zinc::nn
