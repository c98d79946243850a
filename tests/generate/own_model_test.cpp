// Data and weights of a model of one's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/mode.h"
#include "autograd/ops/reduce.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "data/collate.h"
#include "data/loader.h"
#include "generate/cached_logits.h"
#include "generate/generate.h"
#include "hub/weights.h"
#include "nn/linear.h"
#include "nn/models/llama.h"
#include "tests/files/scratch_folder.h"

namespace zinc::generate {
namespace own_model_test {

using testing::ElementsAre;
using testing::HasSubstr;

template <class Thrown, class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// --- data

// Sample i has i + 1 tokens of value i + 1.
data::Sample sample_of(int64_t index, std::vector<int32_t> labels) {
  const auto size = static_cast<size_t>(index + 1);
  return {.tokens = std::vector<int32_t>(size, static_cast<int32_t>(index + 1)),
          .labels = std::move(labels),
          .more = {std::vector<int32_t>(size, 9)}};
}

TEST(MadeDataset, OfClasses_HasALabelPerRow) {
  const auto data = data::make_dataset(
      3, [](int64_t i) { return sample_of(i, {i == 1 ? nn::kIgnoredLabel : 5}); },
      {.lengths = true, .labels = data::LabelsOf::row, .pad_token = 7, .more = {"token_type_ids"}});
  const data::HostBatch batch = data::collate(*data, std::vector<int64_t>{2, 1},
                                              {.batch_size = 3, .seq_len = 8, .pad_multiple = 4});
  ASSERT_EQ(batch.columns.size(), 4u);
  EXPECT_EQ(batch.columns[0].shape, (Shape{3, 4}));
  EXPECT_THAT(batch.columns[0].values, ElementsAre(3, 3, 3, 7, 2, 2, 7, 7, 7, 7, 7, 7));
  EXPECT_EQ(batch.columns[1].shape, (Shape{3}));
  EXPECT_THAT(batch.columns[1].values, ElementsAre(5, -100, -100));
  EXPECT_THAT(batch.columns[2].values, ElementsAre(3, 2, 1));
  EXPECT_EQ(batch.columns[3].name, "token_type_ids");
  EXPECT_THAT(batch.columns[3].values, ElementsAre(9, 9, 9, 0, 9, 9, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(batch.num_targets, 1);
  EXPECT_EQ(batch.num_tokens, 5);
}

TEST(MadeDataset, OfTexts_PadsLabelsByThemselves) {
  const auto data = data::make_dataset(
      2,
      [](int64_t i) { return sample_of(i, std::vector<int32_t>(static_cast<size_t>(5 - i), 6)); },
      {.labels = data::LabelsOf::text, .more = {"extra"}});
  const data::HostBatch batch = data::collate(*data, std::vector<int64_t>{0, 1},
                                              {.batch_size = 2, .seq_len = 8, .pad_multiple = 2});
  EXPECT_EQ(batch.columns[0].shape, (Shape{2, 2}));
  EXPECT_EQ(batch.columns[1].shape, (Shape{2, 6}));
  EXPECT_THAT(batch.columns[1].values, ElementsAre(6, 6, 6, 6, 6, -100, 6, 6, 6, 6, -100, -100));
  EXPECT_EQ(batch.num_targets, 9);
}

TEST(MadeDataset, WhatDoesNotFit_IsNamedBySample) {
  const auto refused = [](data::BatchFields fields, data::Sample sample) {
    const auto data = data::make_dataset(
        9, [sample](int64_t) { return sample; }, std::move(fields));
    return refusal<DataError>(
        [&] { data::collate(*data, std::vector<int64_t>{4}, {.batch_size = 1, .seq_len = 4}); });
  };
  EXPECT_EQ(refused({.labels = data::LabelsOf::row}, {.tokens = {1, 2}, .labels = {1, 2}}),
            "9 samples: sample 4 has 2 tokens but 2 labels where one belongs");
  EXPECT_EQ(refused({.labels = data::LabelsOf::text}, {.tokens = {1}, .labels = {1, 2, 3, 4, 5}}),
            "9 samples: sample 4 has 5 labels, more than the sequence length of 4");
  EXPECT_EQ(refused({.more = {"kinds"}}, {.tokens = {1}, .labels = {1}}),
            "9 samples: sample 4 has 0 further fields where 1 belong");
  EXPECT_EQ(refused({.more = {"kinds"}}, {.tokens = {1}, .labels = {1}, .more = {{1, 2}}}),
            "9 samples: sample 4 has 2 values of kinds but 1 tokens");
  EXPECT_THAT(refusal<InvalidArgument>([] { data::make_dataset(0, {}); }), HasSubstr("0 samples"));
}

TEST(LoaderExample, HasTheLargestShapesAndAllFields) {
  const auto data = data::make_dataset(
      4, [](int64_t i) { return sample_of(i, {1}); },
      {.lengths = true, .labels = data::LabelsOf::row, .more = {"token_type_ids"}});
  comm::run_local_ranks(1, {.num_threads = 1}, [&](comm::World&) {
    const data::Loader loader(*data, {.micro_batch = 2, .seq_len = 16, .pad_multiple = 8});
    EXPECT_EQ(to_string(loader.example().tensors),
              "input_ids [2, 16] i32, labels [2] i32, lengths [2] i32, token_type_ids [2, 16] i32");
  });
}

// --- weights

struct Own : nn::Model {
  explicit Own(int64_t width = 6) : second{*this, "second", {.in = 6, .out = width}} {}
  Tensor loss(const nn::Batch&) override {
    return autograd::sum(
        second.forward(first.forward(Tensor::full({1, 4}, 0.5, first.weight().dtype()))));
  }
  int64_t max_sequence() const override { return longest; }
  nn::Linear first{*this, "first", {.in = 4, .out = 6}};
  nn::Linear second;
  int64_t longest = 4;
};

TEST(OwnWeights, OfAModule_AreThoseThatAnotherOneReads) {
  const files::ScratchFolder folder;
  comm::run_local_ranks(1, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
    Own model;
    model.set_dtype(DType::bf16);
    model.first.weight().data().fill(0.25);
    hub::save_weights(model, folder / "own");
    EXPECT_THROW(hub::save_weights(model, folder / "own"), IoError);
    hub::save_weights(model, folder / "own", {.replace = true});

    Own again;
    const hub::SafetensorsWeights weights(folder / "own", again);
    zero::Engine engine(again, {}, world, {.weights = &weights});
    EXPECT_EQ(engine.parameter("first.weight").to_vector<float>(), std::vector<float>(24, 0.25f));
    EXPECT_EQ(engine.parameter("second.weight").to_vector<float>(),
              model.second.weight().data().to_vector<float>());
  });
}

TEST(OwnWeights, ThatDoNotFit_AreListed_OrInitialisedWhereAskedFor) {
  const files::ScratchFolder folder;
  comm::run_local_ranks(1, {.seed = 3, .num_threads = 1}, [&](comm::World&) {
    Own model;
    model.first.weight().data().fill(0.25);
    hub::save_weights(model, folder / "own");
    Own wider(7);
    EXPECT_THAT(refusal<DataError>([&] { hub::SafetensorsWeights(folder / "own", wider); }),
                HasSubstr("second.weight: [6, 6] in the file, [7, 6] in the model"));
    wider.load(hub::SafetensorsWeights(folder / "own", wider, /*strict=*/false));
    EXPECT_EQ(wider.first.weight().data().to_vector<float>(), std::vector<float>(24, 0.25f));
    Own fresh(7);
    EXPECT_EQ(wider.second.weight().data().to_vector<float>(),
              fresh.second.weight().data().to_vector<float>());
  });
}

// --- text

TEST(Generate, ByAnEngine_GivesTheTokensOfTheModel_OnEveryStage) {
  const nn::LlamaConfig config{.vocab_size = 31,
                               .max_positions = 24,
                               .hidden_size = 16,
                               .intermediate_size = 24,
                               .num_layers = 2,
                               .num_heads = 2,
                               .initializer_range = 0.3};
  const std::vector<int32_t> prompt{3, 1, 4};
  std::vector<std::vector<int32_t>> texts;
  for (const int stage : {0, 3}) {
    comm::run_local_ranks(2, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
      nn::Llama model(config);
      zero::EngineConfig engine_config;
      engine_config.zero.stage = stage;
      zero::Engine engine(model, engine_config, world);
      std::vector<int32_t> heard;
      const auto text =
          generate_tokens(engine, prompt, {.max_tokens = 12, .sampling = {.temperature = 0.0}},
                          [&](int32_t token) { heard.push_back(token); });
      EXPECT_EQ(heard, text);
      if (world.rank() == 1) texts.push_back(text);
    });
  }
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].size(), 12u);
  EXPECT_EQ(texts[0], texts[1]);
  comm::run_local_ranks(1, {.seed = 3, .num_threads = 1}, [&](comm::World&) {
    nn::Llama model(config);
    model.eval();
    const autograd::NoGrad no_grad;
    CachedLogits logits(model);
    EXPECT_EQ(
        generate_tokens(std::ref(logits), std::vector<std::vector<int32_t>>{prompt},
                        {.max_tokens = 12, .sampling = {.temperature = 0.0}, .context = 24})[0][0]
            .tokens,
        texts[0]);
  });
}

TEST(OwnModel, WhoseLengthNobodyKnows_IsToldToSayIt) {
  comm::run_local_ranks(1, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
    Own model;
    model.longest = 0;
    EXPECT_THAT(refusal<ConfigError>([&] { zero::Engine(model, {}, world); }),
                HasSubstr("override max_sequence(), set EngineConfig::batch.sequence, or"));
    zero::Engine engine(model, {.batch = {.sequence = 3}}, world);
  });
}

TEST(Generate, OfAModelThatIsNoDecoder_IsRefusedByName) {
  comm::run_local_ranks(1, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
    Own model;
    zero::Engine engine(model, {}, world);
    EXPECT_THAT(refusal<InvalidArgument>([&] { generate_tokens(engine, std::vector<int32_t>{1}); }),
                HasSubstr("generation needs zinc::nn::CausalLm"));
  });
}

}  // namespace own_model_test
}  // namespace zinc::generate
