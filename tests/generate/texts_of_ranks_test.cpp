// Texts by ranks that share the weights: keys and values are kept, and every rank makes the passes
// of the others.
#include "generate/texts_of_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/functions/shapes.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/scale.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "generate/generate.h"
#include "generate/text_generator.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "nn/models/t5.h"
#include "zero/engine.h"

namespace zinc::generate {
namespace texts_of_ranks_test {

using testing::HasSubstr;
using Tokens = std::vector<int32_t>;
using Prompts = std::vector<Tokens>;

constexpr int64_t kVocabulary = 61;

// What a model was asked for in this process's rank.
struct Asked {
  int64_t tokens = 0;  // in passes that keep keys and values
  int64_t passes = 0;
  int64_t whole_passes = 0;  // without a cache
};

template <class Model>
class Counted final : public Model {
 public:
  template <class Config>
  Counted(const Config& config, Asked& asked) : Model(config), asked_(asked) {}
  Tensor next_logits(const Tensor& ids, nn::KvCache& cache) override {
    asked_.tokens += ids.numel();
    ++asked_.passes;
    return Model::next_logits(ids, cache);
  }

 private:
  Asked& asked_;
};

template <class Model>
class CountedDecoder final : public Model {
 public:
  template <class Config>
  CountedDecoder(const Config& config, Asked& asked) : Model(config), asked_(asked) {}
  Tensor next_logits(const Tensor& ids) override {
    ++asked_.whole_passes;
    return Model::next_logits(ids);
  }
  Tensor next_logits(const Tensor& ids, nn::KvCache& cache) override {
    asked_.tokens += ids.numel();
    ++asked_.passes;
    return Model::next_logits(ids, cache);
  }

 private:
  Asked& asked_;
};

struct Layer : nn::Module {
  using Module::Module;
  nn::Linear inner{*this, "inner", {.in = 8, .out = 8}};
};

// A model that keeps nothing: each token costs a pass over the whole text.
struct Forgetful final : nn::Model, nn::CausalLm {
  explicit Forgetful(Asked& of) : asked(of) {}
  Tensor logits(const Tensor& ids) {
    Tensor x = autograd::scale(tokens.forward(ids), 50.0);
    for (Layer& layer : h) x = autograd::scale(layer.inner.forward(x), 50.0);
    return head.forward(x);
  }
  Tensor loss(const nn::Batch& batch) override { return autograd::sum(logits(batch["input_ids"])); }
  Tensor next_logits(const Tensor& ids) override {
    ++asked.whole_passes;
    return autograd::at(logits(ids), {autograd::Slice{}, -1});
  }
  int64_t vocab_size() const override { return kVocabulary; }
  int64_t max_sequence() const override { return 48; }

  Asked& asked;
  nn::Embedding tokens{*this, "tokens", {.count = kVocabulary, .features = 8}};
  nn::ModuleList<Layer> h{*this, "h", 3};
  nn::Linear head{*this, "head", {.in = 8, .out = kVocabulary}};
};

// Weights ten times those of a fresh model, so that a token depends on those before it.
std::unique_ptr<nn::Model> make_model(const std::string& kind, Asked& asked) {
  if (kind == "gpt2") {
    nn::Gpt2Config config;
    config.vocab_size = kVocabulary;
    config.max_positions = 48;
    config.hidden_size = 48;
    config.num_layers = 3;
    config.num_heads = 4;
    config.initializer_range = 0.2;
    return std::make_unique<CountedDecoder<nn::Gpt2>>(config, asked);
  }
  if (kind == "llama") {
    nn::LlamaConfig config;
    config.vocab_size = kVocabulary;
    config.max_positions = 48;
    config.hidden_size = 32;
    config.intermediate_size = 80;
    config.num_layers = 3;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.initializer_range = 0.2;
    return std::make_unique<CountedDecoder<nn::Llama>>(config, asked);
  }
  if (kind == "forgetful") return std::make_unique<Forgetful>(asked);
  nn::T5Config config;
  config.vocab_size = kVocabulary;
  config.hidden_size = 24;
  config.head_size = 6;
  config.intermediate_size = 40;
  config.num_layers = 2;
  config.num_decoder_layers = 2;
  config.num_heads = 4;
  config.relative_buckets = 8;
  config.relative_max_distance = 10;
  return std::make_unique<Counted<nn::T5>>(config, asked);
}

// The prompts of a rank of two.
Prompts prompts_of(int rank) {
  if (rank == 0) return {{3, 1, 4}, {5}};
  return {{2, 7, 1, 8, 2, 8, 1, 8}, {9, 9}, {6}};
}

// Texts end at different lengths, and the last of rank 0 ahead of the last of rank 1.
GenerateOptions options_of(bool draws, int rank) {
  return {.max_tokens = 5 + 9 * rank,
          .sampling = {.temperature = draws ? 1.5 : 0.0},
          .seed = 11,
          .ends = [](std::span<const int32_t> text) {
            return text.size() > 2 && text.back() % 4 == 0;
          }};
}

std::vector<Tokens> tokens_of(const std::vector<GeneratedTexts>& texts) {
  std::vector<Tokens> tokens;
  for (const GeneratedTexts& of_prompt : texts) tokens.push_back(of_prompt.front().tokens);
  return tokens;
}

struct Written {
  std::vector<Tokens> texts;
  Asked asked;
};

// One rank with whole weights writes the texts of `rank`.
Written alone(const std::string& kind, int rank, bool draws) {
  Written written;
  comm::run_local_ranks(1, {.seed = 3, .num_threads = 1}, [&](comm::World&) {
    const auto model = make_model(kind, written.asked);
    model->eval();
    written.texts =
        tokens_of(TextGenerator(*model, prompts_of(rank), options_of(draws, rank)).write());
  });
  return written;
}

std::array<Written, 2> sharded(const std::string& kind, bool draws, bool computes) {
  std::array<Written, 2> written;
  comm::run_local_ranks(2, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
    Written& mine = written[static_cast<size_t>(world.rank())];
    const auto model = make_model(kind, mine.asked);
    zero::EngineConfig config;
    config.batch.sequence = 16;
    config.zero.stage = 3;
    config.zero.param_persistence_threshold = 0;
    zero::Engine engine(*model, config, world, {.computes_only = computes});
    mine.texts =
        tokens_of(write_texts(engine, prompts_of(world.rank()), options_of(draws, world.rank())));
  });
  return written;
}

class TextsOfTwoRanks : public testing::TestWithParam<const char*> {};

TEST_P(TextsOfTwoRanks, WithShardsOfTheWeights_AreThoseOfOneRank_TokenByToken) {
  for (const bool draws : {false, true}) {
    const std::array<Written, 2> expected{alone(GetParam(), 0, draws), alone(GetParam(), 1, draws)};
    const int64_t passes = expected[1].asked.passes;
    EXPECT_LT(expected[0].asked.passes, passes);
    for (const bool computes : {true, false}) {
      SCOPED_TRACE(testing::Message() << "draws " << draws << ", computes only " << computes);
      const std::array<Written, 2> written = sharded(GetParam(), draws, computes);
      for (size_t rank = 0; rank < 2; ++rank) {
        SCOPED_TRACE(rank);
        EXPECT_EQ(written[rank].texts, expected[rank].texts);
        EXPECT_EQ(written[rank].asked.whole_passes, 0);
        // Keys and values are kept: no token passes twice. A pass for another rank is of one token.
        EXPECT_EQ(written[rank].asked.passes, passes);
        EXPECT_EQ(written[rank].asked.tokens,
                  expected[rank].asked.tokens + passes - expected[rank].asked.passes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TextsOfTwoRanks, testing::Values("gpt2", "llama", "t5"),
                         [](const auto& info) { return std::string(info.param); });

// Ranks have other numbers of open texts, and each text is a pass.
TEST(TextsOfRanks, OfAModelThatKeepsNothing_AreThoseOfOneRank) {
  for (const bool draws : {false, true}) {
    const std::array<Written, 2> written = sharded("forgetful", draws, true);
    for (int rank = 0; rank < 2; ++rank) {
      const Written expected = alone("forgetful", rank, draws);
      const Written& found = written[static_cast<size_t>(rank)];
      EXPECT_EQ(found.texts, expected.texts);
      EXPECT_GE(found.asked.whole_passes, expected.asked.whole_passes);
      EXPECT_EQ(found.asked.whole_passes, written[0].asked.whole_passes);
    }
  }
}

// As the samples of a training: every rank writes the same text.
TEST(TextOfAnEngine, WithShardsOfTheWeights_KeepsKeysAndValues) {
  const Tokens prompt{3, 1, 4, 1, 5};
  for (const char* kind : {"gpt2", "llama"}) {
    std::array<Written, 2> written;
    comm::run_local_ranks(2, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
      Written& mine = written[static_cast<size_t>(world.rank())];
      const auto model = make_model(kind, mine.asked);
      zero::EngineConfig config;
      config.zero.stage = 3;
      zero::Engine engine(*model, config, world);
      mine.texts = {generate_tokens(engine, prompt, {.max_tokens = 10, .seed = 2})};
    });
    EXPECT_EQ(written[0].texts.front().size(), 10u);
    EXPECT_EQ(written[0].texts, written[1].texts);
    for (const Written& of_rank : written) {
      EXPECT_EQ(of_rank.asked.whole_passes, 0);
      EXPECT_EQ(of_rank.asked.tokens, std::ssize(prompt) + 10 - 1);
    }
  }
}

TEST(TextsOfRanks, ARankWithoutPrompts_AndOneThatFails_LetTheOthersWrite) {
  const std::vector<Tokens> expected = alone("llama", 1, false).texts;
  comm::run_local_ranks(3, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
    Asked asked;
    const auto model = make_model("llama", asked);
    zero::EngineConfig config;
    config.zero.stage = 3;
    zero::Engine engine(*model, config, world, {.computes_only = true});
    if (world.rank() == 0) {
      EXPECT_TRUE(write_texts(engine, {}, options_of(false, 1)).empty());
    } else if (world.rank() == 1) {
      EXPECT_EQ(tokens_of(write_texts(engine, prompts_of(1), options_of(false, 1))), expected);
    } else {
      try {
        write_texts(engine, {Tokens(49, 1)}, options_of(false, 1));
        ADD_FAILURE();
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr("longer than the model's 48 positions"));
      }
    }
    // And all go on together.
    EXPECT_EQ(tokens_of(write_texts(engine, prompts_of(1), options_of(false, 1))), expected);
  });
}

}  // namespace texts_of_ranks_test
}  // namespace zinc::generate
