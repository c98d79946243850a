// Texts of the tiny models beside those of transformers' generate(), stored by
// tests/reference/make_generated.py. Prompts of unequal length are written side by side.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/context.h"
#include "core/error.h"
#include "files/json/parser.h"
#include "generate/text_generator.h"
#include "hub/model.h"
#include "train/evaluation/evaluated_model.h"

namespace zinc {
namespace generation_test {

using Tokens = std::vector<int32_t>;

constexpr int64_t kNew = 12;

const files::json::Value& stored() {
  static const files::json::Value value = files::json::parse_file("tests/reference/generated.json");
  return value;
}

Tokens tokens_of(const files::json::Value& list) {
  Tokens tokens;
  for (const files::json::Value& token : list.as_array()) {
    tokens.push_back(static_cast<int32_t>(token.as_int64()));
  }
  return tokens;
}

class Generated : public testing::TestWithParam<const char*> {
 protected:
  Generated() : reference_(stored().at("models").at(GetParam())) {
    const hub::ModelConfig config = hub::read_model_config(folder()).config;
    const files::json::Value& groups =
        stored().at("prompts").at(std::to_string(hub::vocabulary_size(config)));
    for (const files::json::Value& group : reference_.at("groups").as_array()) {
      for (const files::json::Value& prompt :
           groups.at(static_cast<size_t>(group.as_int64())).as_array()) {
        prompts_.push_back(tokens_of(prompt));
      }
    }
    EXPECT_EQ(prompts_.size(), 200U);
  }

  static std::string folder() { return str("tests/reference/", GetParam()); }

  std::unique_ptr<nn::Model> model() const {
    const hub::ModelConfig config = hub::read_model_config(folder()).config;
    std::unique_ptr<nn::Model> model = hub::make_model(config);
    model->load(hub::FolderWeights(folder(), *model, config));
    model->eval();
    return model;
  }

  void expect_texts(const std::string& key, const generate::GenerateOptions& options) {
    const auto model = this->model();
    const auto texts = generate::TextGenerator(*model, prompts_, options).write();
    const files::json::Array& expected = reference_.at(key).as_array();
    ASSERT_EQ(texts.size(), expected.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(texts[i][0].tokens, tokens_of(expected[i])) << key << ", prompt " << i;
    }
  }

  const files::json::Value& reference_;
  std::vector<Tokens> prompts_;
  Context context_{{.num_threads = 1}};
  ContextScope scope_{context_};
};

TEST_P(Generated, GreedyTokens_AreThoseOfTransformers) {
  expect_texts("greedy", {.max_tokens = kNew, .sampling = {.temperature = 0.0}});
}

TEST_P(Generated, GreedyTokensWithPenalties_AreThoseOfTransformers) {
  expect_texts(
      "penalized",
      {.max_tokens = kNew,
       .sampling = {.repetition_penalty = 1.5, .no_repeat_ngram_size = 2, .temperature = 0.0},
       .stop_tokens = {static_cast<int32_t>(reference_.at("stop").at(0).as_int64())}});
}

generate::BeamOptions::EarlyStopping early_stopping_of(const files::json::Value* value) {
  using Early = generate::BeamOptions::EarlyStopping;
  if (value == nullptr) return Early::no;
  return value->is_string() ? Early::never : Early::yes;
}

generate::GenerateOptions options_of(const files::json::Value& setting, const Tokens& stop) {
  const auto number = [&](const char* key, double missing) {
    const files::json::Value* value = setting.find(key);
    return value == nullptr ? missing : value->as_double();
  };
  const auto beams = static_cast<int64_t>(number("num_beams", 1.0));
  return {
      .max_tokens = kNew,
      .sampling = {.repetition_penalty = number("repetition_penalty", 1.0),
                   .no_repeat_ngram_size = static_cast<int64_t>(number("no_repeat_ngram_size", 0))},
      .stop_tokens = setting.find("stops") != nullptr ? Tokens{} : stop,
      .beams = {.num_beams = beams,
                .length_penalty = number("length_penalty", 1.0),
                .early_stopping = early_stopping_of(setting.find("early_stopping"))},
      .num_return_sequences = std::min<int64_t>(3, beams)};
}

// Groups of one setting side by side: 40 prompts of two lengths, or 20.
TEST_P(Generated, Beams_AreThoseOfTransformers) {
  const auto model = this->model();
  const files::json::Array& settings = stored().at("settings").as_array();
  const Tokens stop = tokens_of(reference_.at("stop"));
  constexpr size_t kGroup = 20;
  for (size_t s = 0; s < settings.size(); ++s) {
    std::vector<size_t> places;
    std::vector<Tokens> prompts;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      if (i / kGroup % settings.size() != s) continue;
      places.push_back(i);
      prompts.push_back(prompts_[i]);
    }
    const auto texts =
        generate::TextGenerator(*model, prompts, options_of(settings[s], stop)).write();
    for (size_t i = 0; i < places.size(); ++i) {
      const files::json::Array& expected = reference_.at("beams").at(places[i]).as_array();
      ASSERT_EQ(texts[i].size(), expected.size());
      for (size_t n = 0; n < expected.size(); ++n) {
        EXPECT_EQ(texts[i][n].tokens, tokens_of(expected[n]))
            << "setting " << s << ", prompt " << places[i] << ", text " << n;
      }
    }
  }
}

// Ranks with shards of the weights write texts for prompts of their own, one rank for none.
TEST_P(Generated, GreedyTokensOfRanks_AreThoseOfTransformers) {
  const hub::ModelConfig config = hub::read_model_config(folder()).config;
  comm::run_local_ranks(3, {.num_threads = 1}, [&](comm::World& world) {
    train::EvaluatedModel model(folder(), config, world, {.sharded = true});
    std::vector<Tokens> mine;
    const size_t first = world.rank() == 0 ? 15 : 100;
    const size_t count = world.rank() == 2 ? 0 : 10 * static_cast<size_t>(1 + world.rank());
    for (size_t i = 0; i < count; ++i) mine.push_back(prompts_[first + i]);
    const auto texts = model.generate(
        mine, {.max_tokens = kNew - 2 * world.rank(), .sampling = {.temperature = 0.0}});
    ASSERT_EQ(texts.size(), mine.size());
    for (size_t i = 0; i < count; ++i) {
      Tokens expected = tokens_of(reference_.at("greedy").at(first + i));
      expected.resize(static_cast<size_t>(kNew - 2 * world.rank()));
      EXPECT_EQ(texts[i][0].tokens, expected) << "prompt " << first + i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, Generated,
                         testing::Values("gpt2", "llama", "mistral", "qwen2", "qwen3", "gpt_neox",
                                         "gpt_neox_serial", "bloom", "chatglm", "t5", "t5_v1_1"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace generation_test
}  // namespace zinc
