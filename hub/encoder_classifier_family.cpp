#include "hub/builtin_families.h"
#include "hub/json_fields.h"
#include "nn/models/encoder_classifier.h"

namespace zinc::hub {
namespace {

using nn::EncoderClassifierConfig;

// PyTorch has no config.json for such a model: the keys are zinc's.
EncoderClassifierConfig parse_encoder_classifier_config(const files::json::Value& root) {
  JsonFields fields(root);
  EncoderClassifierConfig config;
  config.vocab_size = fields.integer("vocab_size", 0);
  config.max_positions = fields.integer("max_position_embeddings", 512);
  config.hidden_size = fields.integer("hidden_size", 512, JsonFields::kWidest);
  config.num_layers = fields.integer("num_hidden_layers", 6, JsonFields::kMostLayers);
  config.num_heads = fields.integer("num_attention_heads", 8, JsonFields::kWidest);
  config.intermediate_size = fields.integer("intermediate_size", 2048, JsonFields::kWidestInside);
  config.classifier_size = fields.integer("classifier_size", 0, JsonFields::kWidestInside);
  config.num_classes = fields.integer("num_labels", 2);
  config.dropout = fields.number("dropout", 0.1);
  config.layer_norm_epsilon = fields.number("layer_norm_eps", 1e-5);
  const std::vector<int64_t> pad = fields.tokens("pad_token_id", -1);
  config.pad_token = pad.empty() ? -1 : pad.front();
  config.eos_tokens = fields.tokens("eos_token_id", -1);
  fields.refuse_misspelt();
  return config;
}

void write_encoder_classifier_config(const EncoderClassifierConfig& config,
                                     files::json::Object& object) {
  object.set("architectures", files::json::Array{"EncoderClassifier"});
  object.set("model_type", "encoder_classifier");
  object.set("vocab_size", config.vocab_size);
  object.set("max_position_embeddings", config.max_positions);
  object.set("hidden_size", config.hidden_size);
  object.set("num_hidden_layers", config.num_layers);
  object.set("num_attention_heads", config.num_heads);
  object.set("intermediate_size", config.intermediate_size);
  object.set("classifier_size", config.classifier_size);
  object.set("num_labels", config.num_classes);
  object.set("dropout", config.dropout);
  object.set("layer_norm_eps", config.layer_norm_epsilon);
  object.set("pad_token_id",
             config.pad_token < 0 ? files::json::Value() : files::json::Value(config.pad_token));
  object.set("eos_token_id", token_ids(config.eos_tokens));
}

NameMap encoder_classifier_names(const EncoderClassifierConfig&) { return {}; }

}  // namespace

Family encoder_classifier_family() {
  return make_family<EncoderClassifierConfig>(
      {.model_type = "encoder_classifier",
       .architectures = {"EncoderClassifier"},
       .parse = parse_encoder_classifier_config,
       .write = write_encoder_classifier_config,
       .make = make_family_model<nn::EncoderClassifier, EncoderClassifierConfig>,
       .names = encoder_classifier_names,
       .objective = [](const EncoderClassifierConfig& config) {
         return ModelObjective{Objective::class_of_text, config.num_classes};
       }});
}

}  // namespace zinc::hub
