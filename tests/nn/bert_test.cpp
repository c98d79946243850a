// BERT and RoBERTa: sizes, tasks, padding, dropout, errors. Values against transformers:
// tests/parity.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "autograd/mode.h"
#include "core/error.h"
#include "nn/models/bert.h"
#include "tests/autograd/rank.h"

namespace zinc::nn {
namespace bert_test {

using testing::ids_tensor;
using testing::Rank;

constexpr EncoderTask kTasks[] = {EncoderTask::none, EncoderTask::masked_lm,
                                  EncoderTask::sequence_classification,
                                  EncoderTask::token_classification};

BertConfig tiny(BertKind kind = BertKind::bert, EncoderTask task = EncoderTask::masked_lm) {
  return {.kind = kind,
          .task = task,
          .num_classes = 3,
          .vocab_size = 11,
          .max_positions = 6,
          .type_vocab_size = 2,
          .hidden_size = 8,
          .num_layers = 2,
          .num_heads = 2,
          .intermediate_size = 12,
          .initializer_range = 0.3,
          .pad_token = 1};
}

// Two texts of 4 and 2 tokens; `behind`: what stands behind the second one's end.
Batch two_texts(const std::vector<int64_t>& labels, const Shape& shape, int64_t behind = 1) {
  Batch batch;
  batch.tensors = {{"input_ids", ids_tensor({2, 5, 3, 7, 4, 9, behind, behind}, Shape{2, 4})},
                   {"lengths", ids_tensor({4, 2}, Shape{2})},
                   {"labels", ids_tensor(labels, shape)}};
  batch.num_targets = 2;
  return batch;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(BertPresets, HaveThePublishedSizes) {
  struct Published {
    const char* name;
    int64_t masked_lm, without_head;
  };
  // Sizes of transformers' BertForMaskedLM and BertModel, RobertaForMaskedLM and RobertaModel.
  const Published all[] = {{"bert-base", 109'514'298, 109'482'240},
                           {"bert-large", 335'174'458, 335'141'888},
                           {"roberta-base", 124'697'433, 124'645'632},
                           {"roberta-large", 355'412'057, 355'359'744}};
  for (const Published& published : all) {
    BertConfig config = BertConfig::preset(published.name);
    EXPECT_EQ(Bert(config).num_parameters(), published.masked_lm) << published.name;
    EXPECT_EQ(config.num_parameters(), published.masked_lm) << published.name;
    config.task = EncoderTask::none;
    EXPECT_EQ(Bert(config).num_parameters(), published.without_head) << published.name;
  }
  EXPECT_EQ(std::size(all), BertConfig::preset_names().size());
  EXPECT_THROW(BertConfig::preset("bert"), ConfigError);
}

TEST(BertConfig, CountsTheWeightsOfEveryTask) {
  for (const BertKind kind : {BertKind::bert, BertKind::roberta}) {
    for (const EncoderTask task : kTasks) {
      for (const BertPooling pooling : {BertPooling::pooler, BertPooling::mean}) {
        BertConfig config = tiny(kind, task);
        config.pooling = pooling;
        EXPECT_EQ(Bert(config).num_parameters(), config.num_parameters())
            << config.model_type() << " " << name_of(task);
      }
    }
  }
}

TEST(Bert, TokensBehindATextsEndCountForNothing) {
  const Rank rank;
  for (const BertKind kind : {BertKind::bert, BertKind::roberta}) {
    Bert model(tiny(kind, EncoderTask::sequence_classification));
    const auto loss = [&](int64_t behind) {
      return model.loss(two_texts({0, 2}, Shape{2}, behind)).item();
    };
    EXPECT_EQ(loss(1), loss(8)) << model.model_type();
  }
}

TEST(Bert, TokenTypesAreThoseOfTheBatchOrZero) {
  const Rank rank;
  Bert model(tiny(BertKind::bert, EncoderTask::sequence_classification));
  const auto loss = [&](const std::vector<int64_t>& types) {
    Batch batch = two_texts({0, 2}, Shape{2});
    if (!types.empty()) batch.tensors.set("token_type_ids", ids_tensor(types, Shape{2, 4}));
    return model.loss(batch).item();
  };
  EXPECT_EQ(loss({}), loss({0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_NE(loss({}), loss({0, 0, 1, 1, 0, 1, 0, 0}));
}

TEST(Bert, WithoutATaskPoolsTheFirstTokenOrTheMean) {
  const Rank rank;
  const autograd::NoGrad no_grad;
  BertConfig config = tiny(BertKind::roberta, EncoderTask::none);
  const NamedTensors pooled = Bert(config).outputs(two_texts({0, 0}, Shape{2}));
  EXPECT_EQ(pooled["pooled"].shape(), Shape({2, 8}));
  EXPECT_FALSE(pooled.find("logits").defined());

  config.pooling = BertPooling::mean;
  Bert model(config);
  const NamedTensors mean = model.outputs(two_texts({0, 0}, Shape{2}));
  const auto hidden = mean["hidden"].to_vector<double>();
  const auto means = mean["pooled"].to_vector<double>();
  for (size_t c = 0; c < 8; ++c) {
    double first = 0.0, second = 0.0;
    for (size_t t = 0; t < 4; ++t) first += hidden[t * 8 + c] / 4;
    for (size_t t = 0; t < 2; ++t) second += hidden[32 + t * 8 + c] / 2;
    EXPECT_NEAR(means[c], first, 1e-6);
    EXPECT_NEAR(means[8 + c], second, 1e-6);
  }
  Batch unpadded = two_texts({0, 0}, Shape{2});
  unpadded.tensors.set("lengths", {});
  const NamedTensors all = model.outputs(unpadded);
  const auto every = all["hidden"].to_vector<double>();
  EXPECT_NEAR(all["pooled"].to_vector<double>()[8],
              (every[32] + every[40] + every[48] + every[56]) / 4, 1e-6);
}

TEST(Bert, DropoutIsOfItsPlacesAndOfTrainingAlone) {
  const Rank rank;
  const Batch batch = two_texts({0, 2}, Shape{2});
  for (const BertKind kind : {BertKind::bert, BertKind::roberta}) {
    const BertConfig none = tiny(kind, EncoderTask::sequence_classification);
    const double loss = Bert(none).loss(batch).item();
    for (const auto member : {&BertConfig::hidden_dropout, &BertConfig::attention_dropout,
                              &BertConfig::classifier_dropout}) {
      BertConfig config = none;
      config.*member = 0.5;
      Bert model(config);
      EXPECT_NE(model.loss(batch).item(), loss);
      model.eval();
      EXPECT_EQ(model.loss(batch).item(), loss);
    }
  }
}

TEST(Bert, RecomputationChangesNoBit) {
  const Rank rank;
  Bert model(tiny());
  const Batch batch = two_texts({3, -100, -100, 4, -100, 9, -100, -100}, Shape{2, 4});
  const double loss = model.loss(batch).item();
  model.set_recompute_every(1);
  EXPECT_EQ(model.loss(batch).item(), loss);
}

TEST(Bert, ExampleHasTheLabelsOfItsTask) {
  const Rank rank;
  for (const EncoderTask task : kTasks) {
    const Batch batch = Bert(tiny(BertKind::bert, task)).example(2, 4);
    const bool of_texts = task == EncoderTask::sequence_classification;
    EXPECT_EQ(batch["labels"].shape(), of_texts ? Shape({2}) : Shape({2, 4}));
    EXPECT_EQ(batch.num_targets, of_texts ? 2 : 8);
  }
}

// C 8, F 12, L 2, V 11, T 4. A layer's products: 4 * 64 + 2 * 96; the head's: 64 + 88.
TEST(Bert, FlopsCountProductsAndAttention) {
  const double layers = 6.0 * 2 * (256 + 192) + 12.0 * 2 * 8 * 4;
  EXPECT_EQ(Bert(tiny()).flops_per_token(4), layers + 6.0 * (64 + 88));
  EXPECT_EQ(Bert(tiny(BertKind::bert, EncoderTask::token_classification)).flops_per_token(4),
            layers + 6.0 * 24);
  EXPECT_EQ(Bert(tiny(BertKind::bert, EncoderTask::sequence_classification)).flops_per_token(4),
            layers);
}

TEST(Bert, WhatDoesNotFitIsAnErrorWithItsCure) {
  const Rank rank;
  const auto message = [](EncoderTask task, const Batch& batch) {
    return message_of([&] { Bert(tiny(BertKind::roberta, task)).loss(batch); });
  };
  const Batch of_texts = two_texts({0, 1}, Shape{2});
  const Batch of_tokens = two_texts({0, 1, 2, 0, 1, 2, 0, 1}, Shape{2, 4});
  EXPECT_EQ(message(EncoderTask::sequence_classification, of_tokens),
            "roberta: sequence_classification takes a label of each text, [2], not [2, 4]; for "
            "labels of tokens make the model for token_classification");
  EXPECT_EQ(message(EncoderTask::token_classification, of_texts),
            "roberta: token_classification takes a label of each token, [2, 4], not [2]; for "
            "labels of texts make the model for sequence_classification");
  EXPECT_NE(message(EncoderTask::masked_lm, of_texts), "");
  EXPECT_EQ(message(EncoderTask::none, of_texts),
            "roberta: a model of the task none has no loss; make it for masked_lm, "
            "sequence_classification or token_classification to train it");

  Batch long_batch;
  long_batch.tensors = {{"input_ids", Tensor::zeros({1, 7}, DType::i32)},
                        {"labels", Tensor::zeros({1, 7}, DType::i32)}};
  EXPECT_EQ(message(EncoderTask::masked_lm, long_batch),
            "roberta: sequences must have 1 to 6 tokens, not 7; cut them to 6");
  Batch packed = of_tokens;
  packed.tensors.set("document_starts", Tensor::zeros({2, 4}, DType::i32));
  EXPECT_NE(message(EncoderTask::masked_lm, packed).find("a row of its own"), std::string::npos);
}

TEST(BertConfig, ContradictionsAreErrorsByKey) {
  const auto message = [](const std::function<void(BertConfig&)>& change) {
    BertConfig config = tiny(BertKind::roberta, EncoderTask::sequence_classification);
    change(config);
    return message_of([&] { config.validate(); });
  };
  EXPECT_EQ(message([](BertConfig&) {}), "");
  EXPECT_EQ(message([](BertConfig& c) { c.num_heads = 3; }),
            "roberta model: hidden_size (8) must be a multiple of num_attention_heads (3)");
  EXPECT_EQ(message([](BertConfig& c) { c.num_classes = 1; }),
            "roberta model: num_labels must be 2 or more classes, not 1; regression is not "
            "supported");
  EXPECT_EQ(message([](BertConfig& c) { c.pad_token = 11; }),
            "roberta model: pad_token_id must be a token of the vocabulary, not 11");
  EXPECT_EQ(message([](BertConfig& c) { c.classifier_dropout = 1.5; }),
            "roberta model: classifier_dropout must lie in [0, 1), not 1.5");
}

}  // namespace bert_test
}  // namespace zinc::nn
