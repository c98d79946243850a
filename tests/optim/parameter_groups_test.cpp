#include "optim/parameter_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"

namespace zinc::optim {
namespace parameter_groups_test {

using autograd::Parameter;
using testing::ElementsAre;

class Groups : public testing::Test {
 protected:
  Parameter weight{"w", {4, 4}, autograd::Initializer::zeros()};
  Parameter bias{"b", {4}, autograd::Initializer::zeros()};
  Parameter frozen{"f", {4, 4}, autograd::Initializer::zeros()};
  std::vector<Parameter*> all{&bias, &weight, &frozen};
  Groups() { frozen.set_requires_grad(false); }
};

TEST_F(Groups, BiasesDoNotDecayAndFrozenParametersAreLeftOut) {
  const auto groups = make_parameter_groups(all, {.lr = 0.5, .weight_decay = 0.1});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].name, "decay");
  EXPECT_THAT(groups[0].parameters, ElementsAre(&weight));
  EXPECT_EQ(groups[0].hyper.weight_decay, 0.1);
  EXPECT_EQ(groups[1].name, "no_decay");
  EXPECT_THAT(groups[1].parameters, ElementsAre(&bias));
  EXPECT_EQ(groups[1].hyper.weight_decay, 0.0);
  for (const auto& group : groups) EXPECT_EQ(group.hyper.lr, 0.5);
}

TEST_F(Groups, EmptyGroupsAreLeftOut) {
  const std::vector<Parameter*> only{&bias};
  const auto groups = make_parameter_groups(only, {});
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].name, "no_decay");
}

TEST_F(Groups, AClientsGroupsAreChecked) {
  const auto refused = [](std::vector<ParameterGroup> groups, const std::string& says) {
    try {
      check_parameter_groups(groups);
      ADD_FAILURE() << "accepted: " << says;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  check_parameter_groups(std::vector<ParameterGroup>{{"a", {&weight}, {}}, {"b", {&bias}, {}}});
  refused({{"a", {&weight}, {}}, {"b", {&weight}, {}}}, "w comes twice");
  refused({{"a", {&weight, &weight}, {}}}, "w comes twice");
  refused({{"a", {&frozen}, {}}}, "f is frozen");
  refused({{"a", {&weight}, {}}, {"a", {&bias}, {}}}, "name of its own");
  refused({{"", {&weight}, {}}}, "name of its own");
}

}  // namespace parameter_groups_test
}  // namespace zinc::optim
