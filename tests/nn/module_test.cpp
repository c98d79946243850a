#include "nn/module.h"

#include <gtest/gtest.h>

#include "core/context.h"
#include "core/error.h"

namespace zinc::nn {
namespace module_test {

using autograd::Initializer;

struct Leaf : Module {
  Leaf(Module& parent, std::string name, int64_t n) : Module(parent, std::move(name)), n(n) {}
  int64_t n;
  Parameter weight{*this, "weight", {n, 2}, Initializer::normal(1.0)};
  Parameter bias{*this, "bias", {n}, Initializer::zeros()};
};

struct Tree : Module {
  Parameter scale{*this, "scale", {1}, Initializer::ones()};
  Leaf first{*this, "first", 3};
  ModuleList<Leaf> h{*this, "h", 2, int64_t{4}};
  Parameter last{*this, "last", {5}, Initializer::zeros()};
};

std::vector<std::string> names_of(Module& module) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : module.named_parameters()) names.push_back(name);
  return names;
}

TEST(Module, NamesFollowTheTreeInOrderOfDeclaration) {
  Tree tree;
  EXPECT_EQ(names_of(tree),
            (std::vector<std::string>{"scale", "first.weight", "first.bias", "h.0.weight",
                                      "h.0.bias", "h.1.weight", "h.1.bias", "last"}));
  EXPECT_EQ(tree.h[1].path(), "h.1");
  EXPECT_EQ(tree.num_parameters(), 1 + 9 + 2 * 12 + 5);
  EXPECT_EQ(tree.modules().size(), 5u);
}

TEST(Module, BadNamesAreRefusedWithTheirPlace) {
  Tree tree;
  const auto message = [&](const std::string& name) {
    try {
      Leaf leaf(tree.first, name, 1);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("weight"), "module: first already has a member called 'weight'");
  EXPECT_EQ(message(""), "module: a member of first needs a name");
  EXPECT_EQ(message("a.b"), "module: the name 'a.b' in first must not contain a dot");
  EXPECT_EQ(message("fine"), "no error");
  EXPECT_EQ(message("fine"), "no error") << "a member that is gone frees its name";
}

TEST(Module, ParameterByNameOrNearestNames) {
  Tree tree;
  EXPECT_EQ(&tree.parameter("h.1.bias"), &tree.h[1].bias);
  try {
    tree.parameter("h.2.bias");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "module: no parameter is called 'h.2.bias'; did you mean 'h.0.bias'?");
  }
}

TEST(Module, FreezeByPatternCountsAndRefusesNoMatch) {
  Tree tree;
  EXPECT_EQ(tree.freeze("h.*.weight"), 2);
  EXPECT_FALSE(tree.h[0].weight.requires_grad());
  EXPECT_TRUE(tree.h[0].bias.requires_grad());
  EXPECT_EQ(tree.num_trainable_parameters(), tree.num_parameters() - 16);
  EXPECT_EQ(tree.unfreeze("h.0.*"), 2);
  EXPECT_THROW(tree.freeze("nothing.*"), InvalidArgument);
}

TEST(Module, TrainingModeReachesEveryModule) {
  Tree tree;
  tree.eval();
  for (Module* module : tree.modules()) EXPECT_FALSE(module->is_training());
  tree.train();
  for (Module* module : tree.modules()) EXPECT_TRUE(module->is_training());
}

TEST(Module, LoadsItsOwnStateDict) {
  Context context({.seed = 3});
  const ContextScope scope(context);
  Tree tree;
  const StateDict own = tree.state_dict();
  const auto before = own.at("first.weight").to_vector<float>();
  EXPECT_TRUE(tree.load_state_dict(tree.state_dict()).ok());
  EXPECT_EQ(tree.state_dict().at("first.weight").to_vector<float>(), before);
}

TEST(Module, LostValues_AreToldByName_UntilOthersAreLoaded) {
  Context context({.seed = 3});
  const ContextScope scope(context);
  Tree tree;
  Tree other;
  for (Parameter* parameter : tree.parameters()) parameter->lose_data("the cat ate them");
  try {
    tree.state_dict();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "parameter 'scale': its values are gone: the cat ate them");
  }
  EXPECT_TRUE(tree.load_state_dict(other.state_dict()).ok());
  EXPECT_EQ(tree.h[0].weight.data().to_vector<float>(),
            other.h[0].weight.data().to_vector<float>());
  tree.last.lose_data("again");
  tree.load(InitializerSource(7));
  EXPECT_TRUE(tree.last.has_data());
}

TEST(Module, StateDictRoundTripsAndReportsWhatDoesNotFit) {
  Context context({.seed = 3});
  const ContextScope scope(context);
  Tree tree;
  Tree other;
  StateDict values = tree.state_dict();
  EXPECT_EQ(values.size(), 8u);
  EXPECT_TRUE(other.load_state_dict(values).ok());
  other.first.weight.data().fill(7.0);
  EXPECT_EQ(other.first.weight.data().to_vector<float>(), std::vector<float>(6, 7.0f));

  values.erase("last");
  values["extra"] = Tensor::zeros({1});
  values["scale"] = Tensor::zeros({2});
  const LoadResult result = other.load_state_dict(values);
  EXPECT_EQ(result.missing, std::vector<std::string>{"last"});
  EXPECT_EQ(result.unexpected, std::vector<std::string>{"extra"});
  EXPECT_EQ(result.mismatched, std::vector<std::string>{"scale: [1] vs [2]"});
  EXPECT_EQ(to_string(result),
            "missing 1: last; unexpected 1: extra; mismatched 1: scale: [1] vs [2]");
  EXPECT_EQ(other.first.weight.data().to_vector<float>(),
            tree.first.weight.data().to_vector<float>());
}

TEST(Module, SameSeedSameWeightsWhateverTheOrderOfUse) {
  const auto weights = [](bool backwards) {
    Context context({.seed = 11});
    const ContextScope scope(context);
    Tree tree;
    if (backwards) tree.h[1].weight.data();
    std::vector<float> all;
    for (Parameter* parameter : tree.parameters()) {
      const auto values = parameter->data().to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  EXPECT_EQ(weights(false), weights(true));
}

TEST(Module, TreeShowsShapesCountsAndFrozenWeights) {
  Tree tree;
  tree.freeze("first.bias");
  EXPECT_EQ(tree.tree(),
            "model: 39  scale[1]  last[5]\n"
            "  first: 9  weight[3, 2]  bias[3] frozen\n"
            "  h: 24\n"
            "    0: 12  weight[4, 2]  bias[4]\n"
            "    1: 12  weight[4, 2]  bias[4]\n");
}

}  // namespace module_test
}  // namespace zinc::nn
