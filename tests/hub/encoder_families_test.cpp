// The rows of BERT, RoBERTa, T5 and the encoder classifier: config.json and the weights of files.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/safetensors/folder.h"
#include "hub/model.h"
#include "hub/model_config.h"
#include "hub/model_folder.h"
#include "hub/weight_reader.h"
#include "nn/models/bert_config.h"
#include "nn/models/encoder_classifier.h"
#include "nn/models/t5_config.h"
#include "tests/files/scratch_folder.h"

namespace zinc::hub {
namespace encoder_families_test {

using nn::BertConfig;
using nn::EncoderTask;
using nn::T5Config;

ModelConfig parse(const std::string& text) {
  return parse_model_config(files::json::parse(text, "config.json"));
}

std::string data_error(const std::string& text) {
  const std::string message = files::message_of<DataError>([&] { parse(text); });
  return message.substr(0, message.find('\n'));
}

// The files that the hub has, without keys that say nothing of the model.
TEST(EncoderFamilies, PublishedConfigs_AreThePresets) {
  EXPECT_EQ(parse(R"({"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
      "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
      "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
      "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
      "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
      "position_embedding_type": "absolute", "type_vocab_size": 2, "use_cache": true,
      "vocab_size": 30522})")
                .as<BertConfig>(),
            BertConfig::preset("bert-base"));
  EXPECT_EQ(parse(R"({"architectures": ["RobertaForMaskedLM"],
      "attention_probs_dropout_prob": 0.1, "bos_token_id": 0, "eos_token_id": 2,
      "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
      "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05,
      "max_position_embeddings": 514, "model_type": "roberta", "num_attention_heads": 12,
      "num_hidden_layers": 12, "pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 50265})")
                .as<BertConfig>(),
            BertConfig::preset("roberta-base"));
  EXPECT_EQ(parse(R"({"architectures": ["T5ForConditionalGeneration"], "d_ff": 2048, "d_kv": 64,
      "d_model": 768, "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1,
      "feed_forward_proj": "gated-gelu", "initializer_factor": 1.0, "is_encoder_decoder": true,
      "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512,
      "num_decoder_layers": 12, "num_heads": 12, "num_layers": 12, "output_past": true,
      "pad_token_id": 0, "relative_attention_max_distance": 128,
      "relative_attention_num_buckets": 32, "tie_word_embeddings": false, "use_cache": true,
      "vocab_size": 32128})")
                .as<T5Config>(),
            T5Config::preset("flan-t5-base"));
}

// transformers 5 writes version 1.1 with a tied head and an output that is not scaled.
TEST(EncoderFamilies, T5OfTransformers5_IsToldByTheScaleOfItsOutput) {
  const auto config = parse(R"({"model_type": "t5", "tie_word_embeddings": true,
                                "scale_decoder_outputs": false})")
                          .as<T5Config>();
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_TRUE(config.head_begins_as_table);
  EXPECT_TRUE(parse(R"({"model_type": "t5"})").as<T5Config>().tie_word_embeddings);
}

// transformers ties such a head where the file has none; another one of a file stays as it is.
TEST(EncoderFamilies, T5WithoutAStoredHead_BeginsWithItsTable) {
  const files::ScratchFolder folder;
  const std::vector<files::TensorSpec> table = {{"shared.weight", DType::f32, Shape{2, 2}}};
  files::SafetensorsFolderWriter writer(folder.path(), table);
  const std::vector<float> values = {1, 2, 3, 4};
  writer.write("shared.weight", 0, ConstView(values.data(), DType::f32, Shape{4}));
  writer.commit();
  const std::vector<WeightSpec> specs = {{"shared.weight", Shape{2, 2}},
                                         {"lm_head.weight", Shape{2, 2}}};
  const auto reader_for = [&](bool begins_as_table) {
    return WeightReader(
        WeightFolder::open(folder.path()),
        name_map(T5Config{.tie_word_embeddings = false, .head_begins_as_table = begins_as_table}));
  };
  const WeightReader reader = reader_for(true);
  EXPECT_TRUE(reader.match(specs).complete());
  std::vector<float> head(4);
  reader.read("lm_head.weight", Shape{2, 2}, 0, View(head.data(), DType::f32, Shape{4}));
  EXPECT_EQ(head, values);
  EXPECT_FALSE(reader_for(false).match(specs).complete());
}

TEST(EncoderFamilies, ArchitectureNamesTheTask) {
  const auto task = [](const std::string& name) {
    return parse(R"({"architectures": [")" + name + R"("]})").as<BertConfig>().task;
  };
  EXPECT_EQ(task("BertModel"), EncoderTask::none);
  EXPECT_EQ(task("RobertaForMaskedLM"), EncoderTask::masked_lm);
  EXPECT_EQ(task("RobertaForSequenceClassification"), EncoderTask::sequence_classification);
  EXPECT_EQ(task("BertForTokenClassification"), EncoderTask::token_classification);
  const auto classes = parse(R"({"architectures": ["BertForSequenceClassification"],
      "id2label": {"0": "bad", "1": "so", "2": "good"}})");
  EXPECT_EQ(classes.as<BertConfig>().num_classes, 3);
}

TEST(EncoderFamilies, WhatIsNotSupported_IsRefusedByName) {
  EXPECT_EQ(data_error(R"({"architectures": ["BertForQuestionAnswering"]})"),
            "config.json:1:20: architectures[0]: this head is not supported; BertForMaskedLM, "
            "...ForSequenceClassification, ...ForTokenClassification and ...Model are");
  EXPECT_EQ(data_error(R"({"model_type": "bert", "hidden_act": "relu"})"),
            "config.json:1:38: hidden_act: this is not supported; gelu is");
  EXPECT_EQ(data_error(R"({"model_type": "bert", "is_decoder": true})"),
            "config.json:1:38: is_decoder: a BERT that decodes is not supported");
  EXPECT_EQ(data_error(R"({"model_type": "t5", "feed_forward_proj": "gated-silu"})"),
            "config.json:1:43: feed_forward_proj: this activation is not supported; relu and "
            "gated-gelu are");
}

TEST(EncoderFamilies, WrittenConfigs_ReadBackEqual) {
  std::vector<ModelConfig> configs;
  for (const nn::BertKind kind : {nn::BertKind::bert, nn::BertKind::roberta}) {
    for (const EncoderTask task : {EncoderTask::none, EncoderTask::sequence_classification,
                                   EncoderTask::token_classification}) {
      BertConfig bert{.kind = kind, .task = task, .classifier_dropout = 0.25, .pad_token = 3};
      if (task != EncoderTask::none) bert.num_classes = 7;
      configs.emplace_back(bert);
      bert.pooling = task == EncoderTask::none ? nn::BertPooling::mean : bert.pooling;
      configs.emplace_back(bert);
    }
  }
  configs.emplace_back(T5Config{.head_size = 5,
                                .num_decoder_layers = 2,
                                .relative_buckets = 8,
                                .relative_max_distance = 20,
                                .initializer_factor = 0.5,
                                .decoder_start_token = 4,
                                .pad_token = 2});
  configs.emplace_back(nn::EncoderClassifierConfig{.vocab_size = 99,
                                                   .max_positions = 20,
                                                   .classifier_size = 11,
                                                   .num_classes = 4,
                                                   .dropout = 0.2,
                                                   .layer_norm_epsilon = 1e-6,
                                                   .pad_token = 1});
  for (const ModelConfig& config : configs) {
    const std::string text = model_config_json(config, DType::bf16);
    EXPECT_EQ(parse(text), config) << text;
  }
}

// bert-base-uncased has a pooler and a second head, which the model of its architecture has not.
TEST(EncoderFamilies, HeadsOfOtherTasks_AreLeftAside) {
  const files::ScratchFolder folder;
  const ModelConfig config =
      parse(R"({"model_type": "bert", "vocab_size": 5, "max_position_embeddings": 3,
                "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
                "intermediate_size": 6})");
  const auto model = make_model(config);
  std::vector<files::TensorSpec> specs;
  for (const auto& [name, parameter] : model->named_parameters()) {
    // The names in bert-base-uncased.
    std::string old = name;
    if (old.ends_with("LayerNorm.weight")) old.replace(old.size() - 6, 6, "gamma");
    if (old.ends_with("LayerNorm.bias")) old.replace(old.size() - 4, 4, "beta");
    specs.push_back({.name = old, .dtype = DType::f32, .shape = parameter->shape()});
  }
  for (const char* name : {"bert.pooler.dense.weight", "cls.seq_relationship.weight",
                           "bert.embeddings.position_ids"}) {
    specs.push_back({.name = name, .dtype = DType::f32, .shape = Shape{4}});
  }
  files::SafetensorsFolderWriter writer(folder.path(), specs);
  for (const files::TensorSpec& spec : specs) {
    const std::vector<float> zeros(static_cast<size_t>(spec.shape.numel()));
    writer.write(spec.name, 0, ConstView(zeros.data(), DType::f32, Shape{spec.shape.numel()}));
  }
  writer.commit();
  EXPECT_NO_THROW(FolderWeights(folder.path(), *model, config));

  // A body without a head takes the same file; a head of texts is not in it.
  ModelConfig body = config;
  body.as<BertConfig>().task = EncoderTask::none;
  body.as<BertConfig>().pooling = nn::BertPooling::mean;
  EXPECT_NO_THROW(FolderWeights(folder.path(), *make_model(body), body));
  body.as<BertConfig>().task = EncoderTask::token_classification;
  const std::string message =
      files::message_of<DataError>([&] { FolderWeights(folder.path(), *make_model(body), body); });
  EXPECT_NE(message.find("classifier.weight"), std::string::npos) << message;
}

}  // namespace encoder_families_test
}  // namespace zinc::hub
