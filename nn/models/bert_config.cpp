#include "nn/models/bert_config.h"

#include <array>
#include <string>

#include "core/error.h"
#include "nn/models/config_check.h"

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
  const ConfigCheck check(model_type());
  check.positive("vocab_size", vocab_size);
  check.positive("max_position_embeddings", max_positions);
  check.positive("type_vocab_size", type_vocab_size);
  check.positive("hidden_size", hidden_size);
  check.positive("num_hidden_layers", num_layers);
  check.positive("num_attention_heads", num_heads);
  check.positive("intermediate_size", intermediate_size);
  check.that(hidden_size % num_heads == 0, "hidden_size (", hidden_size,
             ") must be a multiple of num_attention_heads (", num_heads, ")");
  check.positive("layer_norm_eps", layer_norm_epsilon);
  check.positive("initializer_range", initializer_range);
  check.that(pad_token < vocab_size && pad_token >= (kind == BertKind::roberta ? 0 : -1),
             "pad_token_id must be a token of the vocabulary, not ", pad_token);
  check.rate("hidden_dropout_prob", hidden_dropout);
  check.rate("attention_probs_dropout_prob", attention_dropout);
  if (classifier_dropout != -1.0) check.rate("classifier_dropout", classifier_dropout);
  if (task == EncoderTask::sequence_classification || task == EncoderTask::token_classification) {
    check.that(num_classes >= 2, "num_labels must be 2 or more classes, not ", num_classes,
               "; regression is not supported");
  }
}

BertConfig BertConfig::preset(std::string_view name) {
  std::string known;
  for (const BertPreset& preset : bert_presets()) {
    if (preset.name == name) return preset.config;
    known += known.empty() ? "" : ", ";
    known += preset.name;
  }
  throw ConfigError(str("there is no BERT preset \"", name, "\"; there are ", known));
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
