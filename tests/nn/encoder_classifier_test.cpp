// The classifier around torch.nn.TransformerEncoder: sizes, padding, dropout, errors. Values
// against PyTorch: tests/parity.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "nn/models/encoder_classifier.h"
#include "tests/autograd/rank.h"

namespace zinc::nn {
namespace encoder_classifier_test {

using testing::ids_tensor;
using testing::Rank;

EncoderClassifierConfig tiny() {
  return {.vocab_size = 11,
          .max_positions = 6,
          .hidden_size = 8,
          .num_layers = 2,
          .num_heads = 2,
          .intermediate_size = 12,
          .classifier_size = 5,
          .num_classes = 3,
          .dropout = 0.0,
          .pad_token = 1};
}

Batch two_texts(int64_t behind = 1) {
  Batch batch;
  batch.tensors = {{"input_ids", ids_tensor({2, 5, 3, 7, 4, 9, behind, behind}, Shape{2, 4})},
                   {"lengths", ids_tensor({4, 2}, Shape{2})},
                   {"labels", ids_tensor({0, 2}, Shape{2})}};
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

TEST(EncoderClassifierConfig, CountsItsWeights) {
  EncoderClassifierConfig config = tiny();
  // embedding 88; a layer: projections 288, feed-forward 108 + 104, norms 32; classifier 45 + 18.
  EXPECT_EQ(config.num_parameters(), 88 + 2 * 532 + 63);
  EXPECT_EQ(EncoderClassifier(config).num_parameters(), config.num_parameters());
  config.classifier_size = 0;
  EXPECT_EQ(EncoderClassifier(config).num_parameters(), config.num_parameters());
}

TEST(EncoderClassifier, TokensBehindATextsEndCountForNothing) {
  const Rank rank;
  EncoderClassifier model(tiny());
  EXPECT_EQ(model.loss(two_texts(1)).item(), model.loss(two_texts(8)).item());
  Batch other = two_texts();
  other.tensors.set("lengths", {});
  EXPECT_NE(model.loss(two_texts(1)).item(), model.loss(other).item());
}

TEST(EncoderClassifier, DropoutIsOfTrainingAlone) {
  const Rank rank;
  EncoderClassifierConfig config = tiny();
  const double loss = EncoderClassifier(config).loss(two_texts()).item();
  config.dropout = 0.4;
  EncoderClassifier model(config);
  EXPECT_NE(model.loss(two_texts()).item(), loss);
  model.eval();
  EXPECT_EQ(model.loss(two_texts()).item(), loss);
}

TEST(EncoderClassifier, RecomputationAndExampleFit) {
  const Rank rank;
  EncoderClassifier model(tiny());
  const double loss = model.loss(two_texts()).item();
  model.set_recompute_every(1);
  EXPECT_EQ(model.loss(two_texts()).item(), loss);
  EXPECT_EQ(model.example(2, 4)["labels"].shape(), Shape({2}));
  EXPECT_EQ(model.example(2, 4).num_targets, 2);
  // Two layers of 4 * 64 + 2 * 96 products, and attention.
  EXPECT_EQ(model.flops_per_token(4), 6.0 * 2 * 448 + 12.0 * 2 * 8 * 4);
}

TEST(EncoderClassifier, WhatDoesNotFitIsAnErrorWithItsCure) {
  const Rank rank;
  EncoderClassifier model(tiny());
  Batch of_tokens = two_texts();
  of_tokens.tensors.set("labels", of_tokens["input_ids"]);
  EXPECT_EQ(message_of([&] { model.loss(of_tokens); }),
            "encoder_classifier: sequence_classification takes a label of each text, [2], not "
            "[2, 4]; for labels of tokens make the model for token_classification");
  EncoderClassifierConfig odd = tiny();
  odd.hidden_size = 9;
  EXPECT_EQ(message_of([&] { odd.validate(); }),
            "encoder_classifier model: hidden_size (9) must be even, and a multiple of "
            "num_attention_heads (2)");
}

}  // namespace encoder_classifier_test
}  // namespace zinc::nn
