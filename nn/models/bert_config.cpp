#include "nn/models/bert_config.h"

#include <array>
#include <string>

#include "core/error.h"

namespace zinc::nn {
namespace {

struct BertPreset {
  std::string_view name;
  BertConfig config;
};

BertConfig published_bert(int64_t width, int64_t layers) {
  return {.hidden_size = width,
          .num_layers = layers,
          .num_heads = width / 64,
          .intermediate_size = 4 * width,
          .hidden_dropout = 0.1,
          .attention_dropout = 0.1};
}

BertConfig published_roberta(int64_t width, int64_t layers) {
  BertConfig config = published_bert(width, layers);
  config.kind = BertKind::roberta;
  config.vocab_size = 50265;
  config.type_vocab_size = 1;
  config.layer_norm_epsilon = 1e-5;
  config.pad_token = 1;
  config.bos_token = 0;
  config.eos_tokens = {2};
  return config;
}

const std::array<BertPreset, 4>& bert_presets() {
  static const std::array<BertPreset, 4> table = {{
      {"bert-base", published_bert(768, 12)},
      {"bert-large", published_bert(1024, 24)},
      {"roberta-base", published_roberta(768, 12)},
      {"roberta-large", published_roberta(1024, 24)},
  }};
  return table;
}

void check_bert(const BertConfig& config, bool condition, const std::string& message) {
  if (!condition) throw ConfigError(concat(config.model_type(), " model: ", message));
}

}  // namespace

bool BertConfig::has_pooler() const {
  if (task == EncoderTask::none) return pooling == BertPooling::pooler;
  return task == EncoderTask::sequence_classification && kind == BertKind::bert;
}

int64_t BertConfig::num_parameters() const {
  const int64_t C = hidden_size, F = intermediate_size, norm = 2 * C, square = C * C + C;
  const int64_t tables = (vocab_size + max_positions + first_position() + type_vocab_size) * C;
  const int64_t layer = 4 * square + (C * F + F) + (F * C + C) + 2 * norm;
  const int64_t classifier = C * num_classes + num_classes;
  int64_t head = has_pooler() ? square : 0;
  if (task == EncoderTask::masked_lm) head += square + norm + vocab_size;
  if (task == EncoderTask::token_classification) head += classifier;
  if (task == EncoderTask::sequence_classification) {
    head += classifier + (kind == BertKind::roberta ? square : 0);
  }
  return tables + norm + num_layers * layer + head;
}

void BertConfig::validate() const {
  const auto positive = [&](std::string_view key, int64_t value) {
    check_bert(*this, value > 0, concat(key, " must be positive, not ", value));
  };
  const auto rate = [&](std::string_view key, double value) {
    check_bert(*this, value >= 0.0 && value < 1.0, concat(key, " must lie in [0, 1), not ", value));
  };
  positive("vocab_size", vocab_size);
  positive("max_position_embeddings", max_positions);
  positive("type_vocab_size", type_vocab_size);
  positive("hidden_size", hidden_size);
  positive("num_hidden_layers", num_layers);
  positive("num_attention_heads", num_heads);
  positive("intermediate_size", intermediate_size);
  check_bert(*this, hidden_size % num_heads == 0,
             concat("hidden_size (", hidden_size, ") must be a multiple of num_attention_heads (",
                    num_heads, ")"));
  check_bert(*this, layer_norm_epsilon > 0.0,
             concat("layer_norm_eps must be positive, not ", layer_norm_epsilon));
  check_bert(*this, initializer_range > 0.0,
             concat("initializer_range must be positive, not ", initializer_range));
  check_bert(*this, pad_token < vocab_size && pad_token >= (kind == BertKind::roberta ? 0 : -1),
             concat("pad_token_id must be a token of the vocabulary, not ", pad_token));
  rate("hidden_dropout_prob", hidden_dropout);
  rate("attention_probs_dropout_prob", attention_dropout);
  if (classifier_dropout != -1.0) rate("classifier_dropout", classifier_dropout);
  if (task == EncoderTask::sequence_classification || task == EncoderTask::token_classification) {
    check_bert(*this, num_classes >= 2,
               concat("num_labels must be 2 or more classes, not ", num_classes,
                      "; regression is not supported"));
  }
}

BertConfig BertConfig::preset(std::string_view name) {
  std::string known;
  for (const BertPreset& preset : bert_presets()) {
    if (preset.name == name) return preset.config;
    known += known.empty() ? "" : ", ";
    known += preset.name;
  }
  throw ConfigError(concat("there is no BERT preset \"", name, "\"; there are ", known));
}

std::span<const std::string_view> BertConfig::preset_names() {
  static const auto names = [] {
    std::array<std::string_view, 4> result{};
    for (size_t i = 0; i < result.size(); ++i) result[i] = bert_presets()[i].name;
    return result;
  }();
  return names;
}

}  // namespace zinc::nn
