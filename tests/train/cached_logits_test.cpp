#include "train/cached_logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/mode.h"
#include "core/context.h"
#include "core/error.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "train/generate.h"

namespace zinc::train {
namespace cached_logits_test {

constexpr int64_t kContext = 32;
constexpr int64_t kVocabulary = 61;

// Weights ten times those of a fresh model, so that attention is not nearly uniform.
std::unique_ptr<nn::Model> gpt2() {
  nn::Gpt2Config config;
  config.vocab_size = kVocabulary;
  config.max_positions = kContext;
  config.hidden_size = 48;
  config.num_layers = 3;
  config.num_heads = 4;
  config.initializer_range = 0.2;
  return std::make_unique<nn::Gpt2>(config);
}

std::unique_ptr<nn::Model> llama() {
  nn::LlamaConfig config;
  config.vocab_size = kVocabulary;
  config.max_positions = kContext;
  config.hidden_size = 32;
  config.intermediate_size = 80;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.initializer_range = 0.2;
  return std::make_unique<nn::Llama>(config);
}

struct ModelCase {
  const char* name;
  std::unique_ptr<nn::Model> (*make)();
};

class CachedModel : public testing::TestWithParam<ModelCase> {
 protected:
  CachedModel() : model_(GetParam().make()) { model_->eval(); }

  std::vector<int32_t> generate_with(const NextLogits& logits, int64_t tokens, double temperature) {
    const std::vector<int32_t> prompt{3, 1, 4, 1, 5};
    return generate(logits, prompt,
                    {.max_tokens = tokens,
                     .sampling = {.temperature = temperature},
                     .seed = 9,
                     .context = kContext});
  }

  nn::CachedCausalLm& lm() {
    return nn::require_interface<nn::CachedCausalLm>(*model_, "this test");
  }

  Context context_{{.seed = 4, .num_threads = 1}};
  ContextScope scope_{context_};
  autograd::NoGrad no_grad_;
  std::unique_ptr<nn::Model> model_;
};

TEST_P(CachedModel, Generate_GivesTheTokensOfTheWholePassAtTheCostOfOneEach) {
  for (const double temperature : {0.0, 1.0}) {
    CachedLogits cached(*model_);
    const auto with = generate_with(std::ref(cached), 27, temperature);
    const auto without =
        generate_with([&](const Tensor& ids) { return lm().next_logits(ids); }, 27, temperature);
    EXPECT_EQ(with, without) << "temperature " << temperature;
    EXPECT_EQ(cached.tokens_computed(), 5 + 26);  // the last token is not looked at
  }
}

TEST_P(CachedModel, WindowThatSlides_StartsAfresh) {
  CachedLogits cached(*model_);
  const auto with = generate_with(std::ref(cached), 35, 1.0);
  const auto without =
      generate_with([&](const Tensor& ids) { return lm().next_logits(ids); }, 35, 1.0);
  EXPECT_EQ(with, without);
  // 32 positions are filled one by one; each of the 7 windows behind them is another text.
  EXPECT_EQ(cached.tokens_computed(), kContext + 7 * kContext);
}

// Pieces of any length give the logits of the whole up to the order of f32 sums: of 48 products
// each, in 3 layers, on logits of a few units.
TEST_P(CachedModel, Pieces_GiveTheLogitsOfTheWhole) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 20; ++i)
    tokens.push_back(static_cast<int32_t>((7 * i + 3) % kVocabulary));
  const std::vector<float> whole =
      lm().next_logits(Tensor::from<int32_t>(tokens, {1, 20})).to_vector<float>();
  nn::KvCache cache(kContext);
  std::vector<float> pieces;
  int64_t begin = 0;
  for (const int64_t length : {7, 1, 12}) {
    const std::span<const int32_t> part(tokens.data() + begin, static_cast<size_t>(length));
    pieces = lm().next_logits(Tensor::from<int32_t>(part, {1, length}), cache).to_vector<float>();
    begin += length;
  }
  ASSERT_EQ(pieces.size(), whole.size());
  float largest = 0.0f;
  for (const float value : whole) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(pieces[i], whole[i], 3 * 48 * 1.2e-7f * largest) << i;
  }
  EXPECT_EQ(cache.length(), 20);
}

TEST_P(CachedModel, AnotherText_IsNotTakenForTheOneBefore) {
  CachedLogits cached(*model_);
  const auto ids = [](std::vector<int32_t> tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    return Tensor::from<int32_t>(tokens, {1, count});
  };
  cached(ids({1, 2, 3}));
  const auto after = cached(ids({9, 2, 3, 4})).to_vector<float>();
  const auto alone = lm().next_logits(ids({9, 2, 3, 4})).to_vector<float>();
  EXPECT_EQ(after, alone);
}

TEST_P(CachedModel, Misuse_IsNamed) {
  nn::KvCache small(4);
  const Tensor five = Tensor::zeros({1, 5}, DType::i32);
  EXPECT_THROW(lm().next_logits(five, small), InvalidArgument);
  EXPECT_THROW(nn::KvCache(0), InvalidArgument);
  const Tensor rows = Tensor::zeros({1, 5, 8});
  try {
    small.extend(rows, rows);
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("its capacity of 4"), std::string::npos)
        << error.what();
  }
  const autograd::EnableGrad enabled;
  const Tensor row = Tensor::zeros({1, 1, 8});
  EXPECT_THROW(small.extend(row, row), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Models, CachedModel,
                         testing::Values(ModelCase{"gpt2", gpt2}, ModelCase{"llama", llama}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace cached_logits_test
}  // namespace zinc::train
