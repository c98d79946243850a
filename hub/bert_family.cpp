#include <algorithm>
#include <string>

#include "core/error.h"
#include "hub/builtin_families.h"
#include "hub/json_fields.h"
#include "nn/models/bert.h"

namespace zinc::hub {
namespace {

using nn::BertConfig;
using nn::BertKind;
using nn::EncoderTask;

constexpr std::string_view kHeads[] = {"Model", "ForMaskedLM", "ForSequenceClassification",
                                       "ForTokenClassification"};  // in the order of EncoderTask

std::string architecture_of(BertKind kind, EncoderTask task) {
  return str(kind == BertKind::bert ? "Bert" : "Roberta", kHeads[static_cast<size_t>(task)]);
}

// The task of the first of `architectures`; masked_lm if there are none.
EncoderTask parse_task(const files::json::Value* architectures, BertKind kind) {
  if (architectures == nullptr || architectures->as_array().empty()) return EncoderTask::masked_lm;
  const files::json::Value& first = architectures->as_array().front();
  for (size_t i = 0; i < std::size(kHeads); ++i) {
    const auto task = static_cast<EncoderTask>(i);
    if (first.is_string(architecture_of(kind, task))) return task;
  }
  first.fail(str("this head is not supported; ", architecture_of(kind, EncoderTask::masked_lm),
                 ", ...ForSequenceClassification, ...ForTokenClassification and ...Model are"));
}

BertConfig parse_bert_config(const files::json::Value& root, BertKind kind) {
  const bool roberta = kind == BertKind::roberta;
  JsonFields fields(root);
  BertConfig config{.kind = kind};
  config.task = parse_task(fields.find("architectures"), kind);
  config.num_classes = fields.integer("num_labels", 2);
  if (const files::json::Value* classes = fields.find("id2label")) {
    config.num_classes = static_cast<int64_t>(classes->as_object().size());
  }
  config.vocab_size = fields.integer("vocab_size", roberta ? 50265 : 30522);
  const std::vector<int64_t> pad = fields.tokens("pad_token_id", roberta ? 1 : 0);
  config.pad_token = pad.empty() ? -1 : pad.front();
  config.max_positions = fields.integer("max_position_embeddings", 512) - config.first_position();
  config.type_vocab_size = fields.integer("type_vocab_size", 2);
  config.hidden_size = fields.integer("hidden_size", 768, JsonFields::kWidest);
  config.num_layers = fields.integer("num_hidden_layers", 12, JsonFields::kMostLayers);
  config.num_heads = fields.integer("num_attention_heads", 12, JsonFields::kWidest);
  config.intermediate_size = fields.integer("intermediate_size", 3072, JsonFields::kWidestInside);
  config.layer_norm_epsilon = fields.number("layer_norm_eps", 1e-12);
  config.hidden_dropout = fields.number("hidden_dropout_prob", 0.1);
  config.attention_dropout = fields.number("attention_probs_dropout_prob", 0.1);
  config.classifier_dropout = fields.number("classifier_dropout", -1.0);
  config.initializer_range = fields.number("initializer_range", 0.02);
  const std::vector<int64_t> bos = fields.tokens("bos_token_id", roberta ? 0 : -1);
  config.bos_token = bos.empty() ? -1 : bos.front();
  config.eos_tokens = fields.tokens("eos_token_id", roberta ? 2 : -1);
  std::erase(config.eos_tokens, -1);
  if (const files::json::Value* pooling = fields.find("pooling"); pooling != nullptr) {
    if (!pooling->is_string("mean")) pooling->fail("this is not supported; mean is");
    config.pooling = nn::BertPooling::mean;
  }
  const auto refuse_other = [&](std::string_view key, std::string_view only) {
    const files::json::Value* value = fields.find(key);
    if (value != nullptr && !value->is_string(only)) {
      value->fail(str("this is not supported; ", only, " is"));
    }
  };
  refuse_other("hidden_act", "gelu");
  refuse_other("position_embedding_type", "absolute");
  refuse_other("problem_type", "single_label_classification");
  fields.require_value("is_decoder", false, "a BERT that decodes is not supported");
  fields.require_value("add_cross_attention", false, "cross-attention is not supported");
  fields.require_value("tie_word_embeddings", true, "a head of its own is not supported");
  fields.refuse_misspelt();
  return config;
}

void write_bert_config(const BertConfig& config, files::json::Object& object) {
  object.set("architectures", files::json::Array{architecture_of(config.kind, config.task)});
  object.set("model_type", config.model_type());
  object.set("vocab_size", config.vocab_size);
  object.set("max_position_embeddings", config.max_positions + config.first_position());
  object.set("type_vocab_size", config.type_vocab_size);
  object.set("hidden_size", config.hidden_size);
  object.set("num_hidden_layers", config.num_layers);
  object.set("num_attention_heads", config.num_heads);
  object.set("intermediate_size", config.intermediate_size);
  object.set("hidden_act", "gelu");
  object.set("layer_norm_eps", config.layer_norm_epsilon);
  object.set("hidden_dropout_prob", config.hidden_dropout);
  object.set("attention_probs_dropout_prob", config.attention_dropout);
  object.set("classifier_dropout", config.classifier_dropout < 0.0
                                       ? files::json::Value()
                                       : files::json::Value(config.classifier_dropout));
  object.set("initializer_range", config.initializer_range);
  object.set("tie_word_embeddings", true);
  object.set("pad_token_id",
             config.pad_token < 0 ? files::json::Value() : files::json::Value(config.pad_token));
  object.set("bos_token_id",
             config.bos_token < 0 ? files::json::Value() : files::json::Value(config.bos_token));
  object.set("eos_token_id", token_ids(config.eos_tokens));
  if (config.task == EncoderTask::none && config.pooling == nn::BertPooling::mean) {
    object.set("pooling", "mean");
  }
  if (config.task != EncoderTask::sequence_classification &&
      config.task != EncoderTask::token_classification) {
    return;
  }
  // Names of classes stay as they are where there are as many.
  const files::json::Value* names = object.find("id2label");
  if (names != nullptr && static_cast<int64_t>(names->as_object().size()) == config.num_classes) {
    return;
  }
  files::json::Object labels, ids;
  for (int64_t i = 0; i < config.num_classes; ++i) {
    labels.set(str(i), str("LABEL_", i));
    ids.set(str("LABEL_", i), i);
  }
  object.set("id2label", std::move(labels));
  object.set("label2id", std::move(ids));
}

// Published files hold heads that a model for another task does not have.
NameMap bert_names(const BertConfig& config) {
  const std::string base(config.model_type());
  const std::string head = config.kind == BertKind::bert ? "cls.predictions." : "lm_head.";
  NameMap names{.prefixes = {base + "."},
                .buffers = {"*embeddings.position_ids", "*embeddings.token_type_ids",
                            "cls.seq_relationship.*"}};
  names.old_endings = {{"LayerNorm.weight", "LayerNorm.gamma"},
                       {"LayerNorm.bias", "LayerNorm.beta"}};
  if (!config.has_pooler()) names.buffers.push_back("*pooler.dense.*");
  if (config.task == EncoderTask::masked_lm) {
    names.tied = {{head + "decoder.weight", base + ".embeddings.word_embeddings.weight"},
                  {head + "decoder.bias", head + "bias"}};
  } else {
    names.buffers.push_back(head + "*");
  }
  return names;
}

BertConfig parse_bert(const files::json::Value& root) {
  return parse_bert_config(root, BertKind::bert);
}
BertConfig parse_roberta(const files::json::Value& root) {
  return parse_bert_config(root, BertKind::roberta);
}

ModelObjective bert_objective(const BertConfig& config) {
  switch (config.task) {
    case EncoderTask::none:
      return {Objective::none};
    case EncoderTask::masked_lm:
      return {Objective::masked_tokens};
    case EncoderTask::sequence_classification:
      return {Objective::class_of_text, config.num_classes};
    case EncoderTask::token_classification:
      return {Objective::classes_of_tokens, config.num_classes};
  }
  return {Objective::none};
}

// BERT's pooler is often in the files of masked-LM models too.
std::vector<std::string> become_bert_classifier(BertConfig& config, int64_t num_classes) {
  if (config.task != EncoderTask::masked_lm && config.task != EncoderTask::none) return {};
  config.task = EncoderTask::sequence_classification;
  config.num_classes = num_classes;
  return {"classifier.*", "*.pooler.dense.*"};
}

FamilyRow<BertConfig> bert_row(BertKind kind) {
  const bool roberta = kind == BertKind::roberta;
  return {.model_type = roberta ? "roberta" : "bert",
          .architectures = {roberta ? "Roberta" : "Bert"},
          .parse = roberta ? parse_roberta : parse_bert,
          .write = write_bert_config,
          .make = make_family_model<nn::Bert, BertConfig>,
          .names = bert_names,
          .learns_positions = true,
          .objective = bert_objective,
          .become_classifier = become_bert_classifier};
}

}  // namespace

Family bert_family() { return make_family(bert_row(BertKind::bert)); }
Family roberta_family() { return make_family(bert_row(BertKind::roberta)); }

}  // namespace zinc::hub
