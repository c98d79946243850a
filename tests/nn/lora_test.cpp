// Low-rank adapters of linear layers.
#include "nn/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "autograd/operators.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/permute.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/unary.h"
#include "core/error.h"
#include "nn/gradcheck.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "tests/autograd/rank.h"

namespace zinc::nn {
namespace lora_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using zinc::testing::random_tensor;
using zinc::testing::Rank;

struct Layer : Module {
  Layer()
      : up(*this, "up",
           LinearOptions{.in = 5,
                         .out = 4,
                         .layout = autograd::WeightLayout::in_out,
                         .activation = autograd::Activation::gelu_tanh}) {}
  Linear up;
};

template <class Thrown, class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Lora, AddsTheScaledProductAheadOfTheActivation) {
  const Rank rank;
  const autograd::NoGrad no_grad;
  Layer layer, plain;
  const LoraOptions options{.rank = 2, .alpha = 3.0, .rank_stabilized = true, .targets = {"up"}};
  EXPECT_THAT(add_lora(layer, options), ElementsAre("up"));
  layer.set_dtype(DType::f64);
  plain.set_dtype(DType::f64);
  const Tensor x = random_tensor({3, 5}, 1, DType::f64);
  const auto expect_equal = [](const Tensor& a, const Tensor& b) {
    const auto x = a.to_vector<double>(), y = b.to_vector<double>();
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-12) << i;
  };
  // B is zero: the layer is what it was.
  expect_equal(layer.up.forward(x), plain.up.forward(x));
  LoraAdapter& adapter = *layer.up.adapter();
  EXPECT_DOUBLE_EQ(adapter.scale(), 3.0 / std::sqrt(2.0));
  adapter.up().weight().data().copy_from(random_tensor({4, 2}, 2, DType::f64));
  const auto t = [](const Tensor& m) { return autograd::transpose(m, 0, 1); };
  const Tensor low = autograd::matmul(x, t(adapter.down().weight().data()));
  const Tensor wanted =
      autograd::gelu(autograd::matmul(x, plain.up.weight().data()) + plain.up.bias()->data() +
                         autograd::matmul(low, t(adapter.up().weight().data())) * adapter.scale(),
                     autograd::GeluKind::tanh);
  expect_equal(layer.up.forward(x), wanted);
}

TEST(Lora, HasGradientsOfTheAdapterAlone) {
  const Rank rank;
  Layer layer;
  add_lora(layer, {.rank = 2, .alpha = 3.0, .targets = {"up"}});
  layer.set_dtype(DType::f64);
  layer.up.adapter()->up().weight().data().copy_from(random_tensor({4, 2}, 2, DType::f64));
  const Tensor x = random_tensor({3, 5}, 1, DType::f64);
  const auto f = [&] { return autograd::sum(autograd::square(layer.up.forward(x))); };
  const GradcheckResult check = gradcheck(layer, f);
  EXPECT_TRUE(check.ok()) << to_string(check);
  autograd::backward(f());
  for (const auto& [name, parameter] : layer.named_parameters()) {
    EXPECT_EQ(parameter->grad().has_value(), is_lora_parameter(name)) << name;
  }
  EXPECT_THAT(refusal<InvalidArgument>([&] { layer.up.weight(); }),
              HasSubstr("up: has an adapter, and its weight is not the whole layer"));
}

Gpt2Config gpt2_config(bool tied) {
  return {.vocab_size = 11,
          .max_positions = 4,
          .hidden_size = 8,
          .num_layers = 2,
          .num_heads = 2,
          .tie_word_embeddings = tied};
}

TEST(Lora, TargetsAreEndsOfPaths) {
  Gpt2 model(gpt2_config(false));
  const int64_t before = model.num_parameters();
  EXPECT_THAT(add_lora(model, {.rank = 2, .targets = {"attn.c_proj", "c_fc"}}),
              ElementsAre("transformer.h.0.attn.c_proj", "transformer.h.0.mlp.c_fc",
                          "transformer.h.1.attn.c_proj", "transformer.h.1.mlp.c_fc"));
  EXPECT_EQ(model.num_trainable_parameters(), 2 * (2 * (8 + 8) + 2 * (8 + 32)));
  EXPECT_EQ(model.num_parameters(), before + model.num_trainable_parameters());
  Gpt2 all(gpt2_config(false));
  EXPECT_EQ(add_lora(all, {.rank = 2, .targets = {"all-linear"}}).size(), 8u);  // not lm_head
}

// The loss with the head's weight alone is another one than that of logits with the adapter.
TEST(Lora, AnAdapterOfTheHeadIsInLossAndLogits) {
  const Rank rank;
  Gpt2 model(gpt2_config(false));
  EXPECT_THAT(add_lora(model, {.rank = 2, .alpha = 3.0, .targets = {"lm_head"}}),
              ElementsAre("lm_head"));
  model.set_dtype(DType::f64);
  Linear& head = *model.logits_layer();
  head.adapter()->up().weight().data().copy_from(random_tensor({11, 2}, 2, DType::f64));
  Batch batch = model.example(1, 4);
  batch.tensors.set("labels", Tensor::from<int32_t>({3, 7, 1, 10}, {1, 4}));
  const auto f = [&] { return model.loss(batch); };
  const GradcheckResult check = gradcheck(model, f);
  EXPECT_TRUE(check.ok()) << to_string(check);
  const Tensor logits = model.outputs(batch)["logits"];
  const double by_logits = autograd::cross_entropy(logits, batch["labels"]).to_vector<float>()[0];
  EXPECT_NEAR(f().to_vector<double>()[0], by_logits, 1e-5);
}

TEST(Lora, SavesModulesWhole) {
  Gpt2 model(gpt2_config(false));
  add_lora(model, {.rank = 2, .targets = {"c_attn"}, .modules_to_save = {"lm_head", "ln_f"}});
  std::vector<std::string> whole;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter->requires_grad() && !is_lora_parameter(name)) whole.push_back(name);
  }
  EXPECT_THAT(whole,
              ElementsAre("transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"));
}

TEST(Lora, WhatMatchesNothing_IsRefusedWithTheNearestName) {
  LlamaConfig config{.vocab_size = 11,
                     .max_positions = 4,
                     .hidden_size = 8,
                     .intermediate_size = 12,
                     .num_layers = 1,
                     .num_heads = 2};
  Llama model(config);
  EXPECT_THAT(refusal<ConfigError>([&] { add_lora(model, {.targets = {"q_prj"}}); }),
              ::testing::AllOf(HasSubstr("LoRA target \"q_prj\" matches no linear layer"),
                               HasSubstr("did you mean \"q_proj\"?"), HasSubstr("down_proj")));
  // Patterns that std::regex would not come back from.
  for (const std::string& pattern :
       {std::string(20'000, '('), std::string("(.*)*(.*)*z"), std::string(".*.*.*.*.*z")}) {
    EXPECT_THAT(refusal<ConfigError>([&] { add_lora(model, {.target_pattern = pattern}); }),
                HasSubstr("\" is not taken: at most 500 characters"));
  }
  EXPECT_THAT(
      refusal<ConfigError>([&] { add_lora(model, {.rank = 1 << 20, .targets = {"q_proj"}}); }),
      HasSubstr("at most 65536, not 1048576"));
  EXPECT_THAT(refusal<ConfigError>(
                  [&] { add_lora(model, {.targets = {"q_proj"}, .modules_to_save = {"scores"}}); }),
              HasSubstr("LoRA module to save \"scores\" matches no module"));
  for (const LoraOptions& wrong :
       {LoraOptions{.rank = 0, .targets = {"q_proj"}},
        LoraOptions{.alpha = 0, .targets = {"q_proj"}},
        LoraOptions{.dropout = 1.0, .targets = {"q_proj"}}, LoraOptions{}}) {
    Llama fresh(config);
    EXPECT_THROW(add_lora(fresh, wrong), ConfigError);
  }
}

// [in, out] with an activation, of DoRA.
struct DecomposedLayer : Layer {
  explicit DecomposedLayer(double dropout) {
    add_lora(*this, {.rank = 2, .alpha = 3.0, .dropout = dropout, .dora = true, .targets = {"up"}});
    set_dtype(DType::f64);
  }
  LoraAdapter& adapter() { return *up.adapter(); }
  Tensor values(Parameter& parameter) { return parameter.data(); }
  // W + s (B A)^T, [in, out]
  Tensor whole() {
    const Tensor change =
        autograd::matmul(values(adapter().down().weight()), values(adapter().up().weight()),
                         {.transpose_a = true, .transpose_b = true});
    return values(adapter().weight()) + change * adapter().scale();
  }
  Tensor norms() {
    const Tensor all = whole();
    return autograd::sqrt(autograd::sum(autograd::square(all), 0));
  }
};

void expect_near(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-12) << i;
}

TEST(Lora, DecomposedRowsHaveTheirTrainedLengths) {
  const Rank rank;
  const autograd::NoGrad no_grad;
  DecomposedLayer layer(0.0);
  Parameter& b = layer.adapter().up().weight();
  b.data().copy_from(random_tensor({4, 2}, 2, DType::f64));
  layer.adapter().magnitude()->data().copy_from(random_tensor({4}, 3, DType::f64));
  const Tensor x = random_tensor({3, 5}, 1, DType::f64);
  const Tensor lengths = layer.adapter().magnitude()->data();
  const Tensor rows = layer.whole() * (lengths / layer.norms());
  expect_near(layer.up.forward(x),
              autograd::gelu(autograd::matmul(x, rows) + layer.up.bias()->data(),
                             autograd::GeluKind::tanh));
}

TEST(Lora, DecomposedLayerStartsAsItWas_WithDropoutToo) {
  const Rank rank;
  const autograd::NoGrad no_grad;
  DecomposedLayer layer(0.5);
  Layer plain;
  plain.set_dtype(DType::f64);
  layer.adapter().magnitude()->data().copy_from(layer.norms());
  const Tensor x = random_tensor({3, 5}, 1, DType::f64);
  ASSERT_TRUE(layer.is_training());
  expect_near(layer.up.forward(x), plain.up.forward(x));
}

struct Table : Module {
  Embedding tokens{*this, "tokens", {.count = 7, .features = 4, .adaptable = true}};
};

TEST(Lora, EmbeddingAddsTheScaledProduct) {
  const Rank rank;
  Table table;
  EXPECT_THAT(add_lora(table, {.rank = 2, .alpha = 3.0, .targets = {"tokens"}}),
              ElementsAre("tokens"));
  table.set_dtype(DType::f64);
  EmbeddingAdapter& adapter = *table.tokens.adapter();
  EXPECT_EQ(adapter.a().data().to_vector<double>(), std::vector<double>(14, 0.0));
  adapter.a().data().copy_from(random_tensor({2, 7}, 2, DType::f64));
  const Tensor ids = Tensor::from(std::vector<int32_t>{3, 0, 6, 3}, {2, 2});
  {
    const autograd::NoGrad no_grad;
    const Tensor product = autograd::matmul(adapter.a().data(), adapter.b().data(),
                                            {.transpose_a = true, .transpose_b = true});
    const Tensor whole = table.tokens.weight().data() + product * 1.5;
    expect_near(table.tokens.forward(ids), autograd::embedding(ids, whole));
  }
  const auto f = [&] { return autograd::sum(autograd::square(table.tokens.forward(ids))); };
  const GradcheckResult check = gradcheck(table, f);
  EXPECT_TRUE(check.ok()) << to_string(check);
}

TEST(Lora, TargetsAreChosenByPatternBlockAndExclusion) {
  const auto adapted = [](LoraOptions options) {
    Gpt2 model(gpt2_config(false));
    options.rank = 2;
    return add_lora(model, options);
  };
  EXPECT_THAT(adapted({.target_pattern = ".*\\.1\\.(attn|mlp)\\.c_(attn|fc)"}),
              ElementsAre("transformer.h.1.attn.c_attn", "transformer.h.1.mlp.c_fc"));
  EXPECT_THAT(adapted({.targets = {"c_proj"}, .exclude = {"mlp.c_proj"}, .layers = {1}}),
              ElementsAre("transformer.h.1.attn.c_proj"));
  EXPECT_THAT(adapted({.targets = {"c_fc"}, .modules_to_save = {"h.0"}}),
              ElementsAre("transformer.h.1.mlp.c_fc"));
  const auto refused = [&](const LoraOptions& options) {
    return refusal<ConfigError>([&] { adapted(options); });
  };
  EXPECT_THAT(refused({.target_pattern = "(c_fc"}), HasSubstr("is no regular expression"));
  EXPECT_THAT(refused({.target_pattern = "c_fc"}), HasSubstr("matches no linear layer"));
  EXPECT_THAT(refused({.targets = {"c_fc"}, .target_pattern = "c_fc"}), HasSubstr("names the"));
  EXPECT_THAT(refused({.targets = {"c_fc"}, .layers = {2}}), HasSubstr("nothing is left"));
  EXPECT_THAT(refused({.targets = {"wpe"}}), HasSubstr("adapters of transformer.wpe are not"));
  EXPECT_THAT(refused({.dora = true, .targets = {"wte"}}), HasSubstr("DoRA is of linear layers"));
  EXPECT_THAT(refused({.targets = {"c_fc"}, .alpha_pattern = {{"c_fc", 0.0}}}),
              HasSubstr("alpha must be positive"));
}

TEST(Lora, RankAndAlphaAreThoseOfTheFirstPatternThatFits) {
  Gpt2 model(gpt2_config(false));
  add_lora(model, {.rank = 4,
                   .alpha = 8.0,
                   .targets = {"c_fc", "c_attn"},
                   .rank_pattern = {{"1\\.mlp\\.c_fc", 2}, {"c_fc", 3}},
                   .alpha_pattern = {{"attn", 1.0}, {"c_attn", 6.0}}});
  std::vector<std::pair<int64_t, double>> found;
  for (const LoraTerms& terms : lora_terms(model)) {
    found.emplace_back(terms.a->shape()[0], terms.scale);
  }
  // c_attn and c_fc of both blocks; "attn" is no end of a path at a dot.
  EXPECT_THAT(found, ElementsAre(std::pair(int64_t{4}, 1.5), std::pair(int64_t{3}, 8.0 / 3.0),
                                 std::pair(int64_t{4}, 1.5), std::pair(int64_t{2}, 4.0)));
}

}  // namespace lora_test
}  // namespace zinc::nn
