#include "hub/builtin_families.h"
#include "hub/json_fields.h"
#include "nn/models/t5.h"

namespace zinc::hub {
namespace {

nn::T5Activation parse_feed_forward(const files::json::Value* value) {
  if (value == nullptr || value->is_string("relu")) return nn::T5Activation::relu;
  if (value->is_string("gated-gelu")) return nn::T5Activation::gated_gelu_tanh;
  value->fail("this activation is not supported; relu and gated-gelu are");
}

nn::T5Config parse_t5_config(const files::json::Value& root) {
  JsonFields fields(root);
  nn::T5Config config;
  config.vocab_size = fields.integer("vocab_size", 32128);
  config.max_positions = fields.integer("n_positions", 512);
  config.hidden_size = fields.integer("d_model", 512, JsonFields::kWidest);
  config.head_size = fields.integer("d_kv", 64, JsonFields::kWidest);
  config.intermediate_size = fields.integer("d_ff", 2048, JsonFields::kWidestInside);
  config.num_layers = fields.integer("num_layers", 6, JsonFields::kMostLayers);
  config.num_decoder_layers = fields.integer("num_decoder_layers", 0, JsonFields::kMostLayers);
  config.num_heads = fields.integer("num_heads", 8, JsonFields::kWidest);
  config.relative_buckets = fields.integer("relative_attention_num_buckets", 32);
  config.relative_max_distance = fields.integer("relative_attention_max_distance", 128);
  config.activation = parse_feed_forward(fields.find("feed_forward_proj"));
  config.layer_norm_epsilon = fields.number("layer_norm_epsilon", 1e-6);
  config.dropout = fields.number("dropout_rate", 0.1);
  config.initializer_factor = fields.number("initializer_factor", 1.0);
  // transformers 5 writes tie_word_embeddings true for both versions, and tells them apart by
  // scale_decoder_outputs.
  const bool ties = fields.boolean("tie_word_embeddings", true);
  const bool scales = fields.boolean("scale_decoder_outputs", true);
  config.tie_word_embeddings = ties && scales;
  config.head_begins_as_table = ties && !scales;
  const std::vector<int64_t> pad = fields.tokens("pad_token_id", 0);
  config.pad_token = pad.empty() ? 0 : pad.front();
  config.decoder_start_token = fields.integer("decoder_start_token_id", config.pad_token);
  const std::vector<int64_t> bos = fields.tokens("bos_token_id", -1);
  config.bos_token = bos.empty() ? -1 : bos.front();
  config.eos_tokens = fields.tokens("eos_token_id", 1);
  fields.refuse_misspelt();
  return config;
}

void write_t5_config(const nn::T5Config& config, files::json::Object& object) {
  const bool gated = config.activation == nn::T5Activation::gated_gelu_tanh;
  object.set("architectures", files::json::Array{"T5ForConditionalGeneration"});
  object.set("model_type", "t5");
  object.set("is_encoder_decoder", true);
  object.set("vocab_size", config.vocab_size);
  object.set("n_positions", config.max_positions);
  object.set("d_model", config.hidden_size);
  object.set("d_kv", config.head_size);
  object.set("d_ff", config.intermediate_size);
  object.set("num_layers", config.num_layers);
  object.set("num_decoder_layers", config.decoder_layers());
  object.set("num_heads", config.num_heads);
  object.set("relative_attention_num_buckets", config.relative_buckets);
  object.set("relative_attention_max_distance", config.relative_max_distance);
  object.set("feed_forward_proj", gated ? "gated-gelu" : "relu");
  object.set("layer_norm_epsilon", config.layer_norm_epsilon);
  object.set("dropout_rate", config.dropout);
  object.set("initializer_factor", config.initializer_factor);
  object.set("tie_word_embeddings", config.tie_word_embeddings || config.head_begins_as_table);
  object.set("scale_decoder_outputs", config.tie_word_embeddings);
  object.set("pad_token_id", config.pad_token);
  object.set("decoder_start_token_id", config.decoder_start_token);
  object.set("bos_token_id",
             config.bos_token < 0 ? files::json::Value() : files::json::Value(config.bos_token));
  object.set("eos_token_id", token_ids(config.eos_tokens));
}

NameMap t5_names(const nn::T5Config& config) {
  // Old files have a table of cross-attention, which no version reads.
  NameMap names{.buffers = {"*EncDecAttention.relative_attention_bias.weight"},
                .tied = {{"encoder.embed_tokens.weight", "shared.weight"},
                         {"decoder.embed_tokens.weight", "shared.weight"}}};
  if (config.tie_word_embeddings) names.tied.push_back({"lm_head.weight", "shared.weight"});
  if (config.head_begins_as_table) names.first_values = {{"lm_head.weight", "shared.weight"}};
  return names;
}

}  // namespace

Family t5_family() {
  return make_family<nn::T5Config>(
      {.model_type = "t5",
       .architectures = {"T5ForConditionalGeneration", "T5"},
       .parse = parse_t5_config,
       .write = write_t5_config,
       .make = make_family_model<nn::T5, nn::T5Config>,
       .names = t5_names,
       .objective = [](const nn::T5Config&) { return ModelObjective{Objective::answer}; }});
}

}  // namespace zinc::hub
