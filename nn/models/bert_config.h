// nn/models/bert_config.h: the sizes and constants of a BERT model (Devlin et al. 2019) or a
// RoBERTa model (Liu et al. 2019), and the task of its head.
//
// A plain value. The key of a Hugging Face config.json stands beside each field.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "nn/encoder.h"

namespace zinc::nn {

// The differences between the two models beside constants.
enum class BertKind : uint8_t {
  bert,     // positions from row 0 of their table; BERT's heads and names
  roberta,  // positions from row pad_token + 1; RoBERTa's heads and names
};

// How a model without a head makes one vector of a text.
enum class BertPooling : uint8_t {
  pooler,  // tanh of a trained layer over the first token: Hugging Face's BertModel
  mean,    // mean over the row's tokens: sentence embeddings; no weights
};

struct BertConfig {
  BertKind kind = BertKind::bert;                    // model_type
  EncoderTask task = EncoderTask::masked_lm;         // architectures
  BertPooling pooling = BertPooling::pooler;         // pooling: "mean", zinc's own key;
                                                     // where task is none
  int64_t num_classes = 2;                           // num_labels, or as many as id2label has
  int64_t vocab_size = 30522;                        // vocab_size
  int64_t max_positions = 512;                       // longest sequence: max_position_embeddings,
                                                     // of RoBERTa less pad_token + 1
  int64_t type_vocab_size = 2;                       // type_vocab_size
  int64_t hidden_size = 768;                         // hidden_size
  int64_t num_layers = 12;                           // num_hidden_layers
  int64_t num_heads = 12;                            // num_attention_heads
  int64_t intermediate_size = 3072;                  // intermediate_size
  double layer_norm_epsilon = 1e-12;                 // layer_norm_eps
  double hidden_dropout = 0.0;                       // hidden_dropout_prob
  double attention_dropout = 0.0;                    // attention_probs_dropout_prob
  double classifier_dropout = -1.0;                  // classifier_dropout; -1: hidden_dropout
  double initializer_range = 0.02;                   // initializer_range
  int64_t pad_token = 0;                             // pad_token_id: its row of the embedding has
                                                     // no gradient from the input
  int64_t bos_token = -1;                            // bos_token_id; -1: none
  std::vector<int64_t> eos_tokens{};                 // eos_token_id: a number or a list
  static constexpr bool tie_word_embeddings = true;  // the head of masked_lm has the embedding

  std::string_view model_type() const { return kind == BertKind::bert ? "bert" : "roberta"; }
  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t mlp_size() const { return intermediate_size; }
  // Row of the position table that the first token has.
  int64_t first_position() const { return kind == BertKind::roberta ? pad_token + 1 : 0; }
  bool has_pooler() const;

  // Number of distinct weights; tied ones count once.
  int64_t num_parameters() const;

  // Throws ConfigError where the fields contradict each other, naming the JSON key.
  void validate() const;

  // "bert-base" (uncased), "bert-large" (uncased), "roberta-base", "roberta-large": as published,
  // for masked_lm. Throws ConfigError for another name.
  static BertConfig preset(std::string_view name);
  static std::span<const std::string_view> preset_names();

  friend bool operator==(const BertConfig&, const BertConfig&) = default;
};

}  // namespace zinc::nn
