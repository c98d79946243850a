#include "generate/cached_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/mode.h"
#include "core/context.h"
#include "core/error.h"
#include "generate/generate.h"
#include "generate/text_generator.h"
#include "nn/models/bloom.h"
#include "nn/models/gpt2.h"
#include "nn/models/gpt_neox.h"
#include "nn/models/llama.h"

namespace zinc::generate {
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

// A model with a window shorter than the texts.
std::unique_ptr<nn::Model> mistral() {
  nn::LlamaConfig config;
  config.kind = nn::LlamaKind::mistral;
  config.vocab_size = kVocabulary;
  config.max_positions = kContext;
  config.hidden_size = 32;
  config.intermediate_size = 80;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.sliding_window = 5;
  config.initializer_range = 0.2;
  return std::make_unique<nn::Llama>(config);
}

std::unique_ptr<nn::Model> gpt_neox() {
  nn::GptNeoxConfig config;
  config.vocab_size = kVocabulary;
  config.max_positions = kContext;
  config.hidden_size = 32;
  config.intermediate_size = 80;
  config.num_layers = 2;
  config.num_heads = 2;
  config.initializer_range = 0.2;
  return std::make_unique<nn::GptNeox>(config);
}

std::unique_ptr<nn::Model> bloom() {
  nn::BloomConfig config;
  config.vocab_size = kVocabulary;
  config.max_positions = kContext;
  config.hidden_size = 48;
  config.num_layers = 2;
  config.num_heads = 3;
  config.initializer_range = 0.2;
  return std::make_unique<nn::Bloom>(config);
}

struct ModelCase {
  const char* name;
  std::unique_ptr<nn::Model> (*make)();
};

class CachedModel : public testing::TestWithParam<ModelCase> {
 protected:
  CachedModel() : model_(GetParam().make()) { model_->eval(); }

  std::vector<int32_t> generate_with(const NextLogits& logits, int64_t tokens, double temperature) {
    const std::vector<std::vector<int32_t>> prompts{{3, 1, 4, 1, 5}};
    return generate_tokens(logits, prompts,
                           {.max_tokens = tokens,
                            .sampling = {.temperature = temperature},
                            .seed = 9,
                            .context = kContext})[0][0]
        .tokens;
  }

  // Makes a pass over all of one text.
  NextLogits whole() {
    return [this](std::span<const OpenText> texts) {
      EXPECT_EQ(texts.size(), 1u);
      return lm().next_logits(
          Tensor::from<int32_t>(texts[0].tokens, {1, std::ssize(texts[0].tokens)}));
    };
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
    const auto without = generate_with(whole(), 27, temperature);
    EXPECT_EQ(with, without) << "temperature " << temperature;
    EXPECT_EQ(cached.tokens_computed(), 5 + 26);  // the last token is not looked at
  }
}

TEST_P(CachedModel, WindowThatSlides_StartsAfresh) {
  CachedLogits cached(*model_);
  const auto with = generate_with(std::ref(cached), 35, 1.0);
  const auto without = generate_with(whole(), 35, 1.0);
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
  const std::vector<int32_t> first{1, 2, 3}, other{9, 2, 3, 4};
  const std::vector<OpenText> one{{.tokens = first}}, two{{.tokens = other}};
  cached(one);
  const auto after = cached(two).to_vector<float>();
  const auto alone = lm().next_logits(Tensor::from<int32_t>(other, {1, 4})).to_vector<float>();
  EXPECT_EQ(after, alone);
}

const std::vector<std::vector<int32_t>> kPrompts{
    {7}, {3, 1, 4, 1, 5, 9, 2, 6, 5}, {2, 7}, {8, 2, 8, 1}, {60, 59, 58, 57, 56, 55, 54}};

// Tokens that end a text early, another one each, so that rows go while others stay; drawn ones,
// the most likely ones, several of each prompt, windows that slide.
TEST_P(CachedModel, TextsOfUnequalLength_AreThoseOfEachAlone) {
  const GenerateOptions drawn{.max_tokens = 20, .seed = 5, .stop_tokens = {11, 30, 42}};
  GenerateOptions several = drawn;
  several.num_return_sequences = 3;
  GenerateOptions sliding = drawn;
  sliding.context = 12;
  for (const GenerateOptions& options :
       {drawn, several, sliding,
        GenerateOptions{.max_tokens = 9, .sampling = {.temperature = 0.0}}}) {
    const std::vector<GeneratedTexts> together = TextGenerator(*model_, kPrompts, options).write();
    ASSERT_EQ(together.size(), kPrompts.size());
    for (size_t p = 0; p < kPrompts.size(); ++p) {
      GenerateOptions own = options;
      own.seed += p;
      const GeneratedTexts alone = TextGenerator(*model_, {kPrompts[p]}, own).write()[0];
      ASSERT_EQ(together[p].size(), alone.size());
      for (size_t s = 0; s < alone.size(); ++s) {
        EXPECT_EQ(together[p][s].tokens, alone[s].tokens) << "prompt " << p << ", text " << s;
        EXPECT_EQ(together[p][s].stopped, alone[s].stopped) << "prompt " << p << ", text " << s;
      }
    }
  }
}

TEST_P(CachedModel, BeamsOfUnequalPrompts_AreThoseOfEachAlone) {
  const GenerateOptions options{.max_tokens = 15,
                                .stop_tokens = {2, 11, 17, 23, 30, 36, 42, 55},
                                .beams = {.num_beams = 4},
                                .num_return_sequences = 4};
  const std::vector<GeneratedTexts> together = TextGenerator(*model_, kPrompts, options).write();
  bool ends_early = false;
  for (size_t p = 0; p < kPrompts.size(); ++p) {
    const GeneratedTexts alone = TextGenerator(*model_, {kPrompts[p]}, options).write()[0];
    ASSERT_EQ(alone.size(), 4u);
    for (size_t s = 0; s < alone.size(); ++s) {
      EXPECT_EQ(together[p][s].tokens, alone[s].tokens) << "prompt " << p << ", text " << s;
      ends_early = ends_early || alone[s].stopped;
      if (s > 0) {
        EXPECT_LE(alone[s].score, alone[s - 1].score);
      }
    }
  }
  EXPECT_TRUE(ends_early);
}

// A search over all continuations there are is exhaustive.
TEST_P(CachedModel, AsManyBeamsAsTexts_FindTheMostLikelyText) {
  const std::vector<int32_t> prompt{3, 1, 4};
  const GenerateOptions options{
      .max_tokens = 2, .context = kContext, .beams = {.num_beams = kVocabulary}};
  const GeneratedText best = TextGenerator(*model_, {prompt}, options).write()[0][0];
  const auto log_probabilities = [&](const std::vector<int32_t>& text) {
    const auto logits =
        lm().next_logits(Tensor::from<int32_t>(text, {1, std::ssize(text)})).to_vector<double>();
    double sum = 0.0;
    for (const double logit : logits) sum += std::exp(logit);
    std::vector<double> all;
    for (const double logit : logits) all.push_back(logit - std::log(sum));
    return all;
  };
  std::pair<double, std::vector<int32_t>> most{-1e9, {}};
  const std::vector<double> first = log_probabilities(prompt);
  for (int32_t a = 0; a < kVocabulary; ++a) {
    std::vector<int32_t> text = prompt;
    text.push_back(a);
    const std::vector<double> second = log_probabilities(text);
    for (int32_t b = 0; b < kVocabulary; ++b) {
      const double sum = first[static_cast<size_t>(a)] + second[static_cast<size_t>(b)];
      most = std::max(most, {sum, {a, b}});
    }
  }
  EXPECT_EQ(best.tokens, most.second);
  EXPECT_NEAR(best.score, most.first / 2, 1e-5);
}

TEST_P(CachedModel, PromptsThatDoNotFit_AreNamed) {
  const std::vector<int32_t> longer(kContext + 1, 3);
  const auto message = [&](const GenerateOptions& options) {
    try {
      TextGenerator(*model_, {{1}, longer}, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("(no error)");
  };
  EXPECT_EQ(message({}),
            "generate: a prompt of 33 tokens is longer than the model's 32 positions; shorten it, "
            "or set the context (--context 32): the model sees that many of the last tokens then");
  EXPECT_EQ(message({.context = 32}), "(no error)");
  EXPECT_NE(message({.context = 32, .beams = {.num_beams = 100}, .cache_limit = 1000000})
                .find(" MB, and there are 1 MB: fewer beams"),
            std::string::npos);
  EXPECT_EQ(message({.context = 32, .beams = {.num_beams = 4}, .cache_limit = 1000000}),
            "(no error)");
}

TEST_P(CachedModel, Misuse_IsNamed) {
  nn::KvCache small(4);
  const Tensor five = Tensor::zeros({1, 5}, DType::i32);
  EXPECT_THROW(lm().next_logits(five, small), InvalidArgument);
  EXPECT_THROW(nn::KvCache(0), InvalidArgument);
  const Tensor rows = Tensor::zeros({1, 5, 8});
  try {
    small.extend(rows, rows, 2);
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("its capacity of 4"), std::string::npos)
        << error.what();
  }
  const autograd::EnableGrad enabled;
  const Tensor row = Tensor::zeros({1, 1, 8});
  EXPECT_THROW(small.extend(row, row, 2), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Models, CachedModel,
                         testing::Values(ModelCase{"gpt2", gpt2}, ModelCase{"llama", llama},
                                         ModelCase{"mistral", mistral},
                                         ModelCase{"gpt_neox", gpt_neox},
                                         ModelCase{"bloom", bloom}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace cached_logits_test
}  // namespace zinc::generate
