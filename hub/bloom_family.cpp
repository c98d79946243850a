#include "hub/builtin_families.h"
#include "hub/json_fields.h"
#include "nn/models/bloom.h"

namespace zinc::hub {
namespace {

nn::BloomConfig parse_bloom_config(const files::json::Value& root) {
  JsonFields fields(root);
  nn::BloomConfig config;
  config.vocab_size = fields.integer("vocab_size", 250880);
  config.max_positions = fields.integer("seq_length", 2048);
  config.hidden_size = fields.integer({"n_embed", "hidden_size"}, 64, JsonFields::kWidest);
  config.num_layers = fields.integer({"n_layer", "num_hidden_layers"}, 2, JsonFields::kMostLayers);
  config.num_heads = fields.integer({"n_head", "num_attention_heads"}, 8, JsonFields::kWidest);
  config.layer_norm_epsilon = fields.number("layer_norm_epsilon", 1e-5);
  config.attention_dropout = fields.number("attention_dropout", 0.0);
  config.hidden_dropout = fields.number("hidden_dropout", 0.0);
  config.initializer_range = fields.number("initializer_range", 0.02);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  const std::vector<int64_t> bos = fields.tokens("bos_token_id", 1);
  config.bos_token = bos.empty() ? -1 : bos.front();
  config.eos_tokens = fields.tokens("eos_token_id", 2);
  const std::vector<int64_t> pad = fields.tokens("pad_token_id", -1);
  config.pad_token = pad.empty() ? -1 : pad.front();
  fields.require_value("apply_residual_connection_post_layernorm", false,
                       "residual connections behind the norms are not supported");
  fields.refuse_misspelt();
  return config;
}

void write_bloom_config(const nn::BloomConfig& config, files::json::Object& object) {
  object.set("architectures", files::json::Array{"BloomForCausalLM"});
  object.set("model_type", "bloom");
  object.set("vocab_size", config.vocab_size);
  object.set("seq_length", config.max_positions);
  object.set("hidden_size", config.hidden_size);
  object.set("n_layer", config.num_layers);
  object.set("n_head", config.num_heads);
  // Other spellings, where a file has them, must not contradict the first one.
  for (const auto& [key, value] :
       {std::pair("n_embed", config.hidden_size), std::pair("num_hidden_layers", config.num_layers),
        std::pair("num_attention_heads", config.num_heads)}) {
    if (object.find(key) != nullptr) object.set(key, value);
  }
  object.set("layer_norm_epsilon", config.layer_norm_epsilon);
  object.set("attention_dropout", config.attention_dropout);
  object.set("hidden_dropout", config.hidden_dropout);
  object.set("initializer_range", config.initializer_range);
  object.set("tie_word_embeddings", config.tie_word_embeddings);
  object.set("bos_token_id",
             config.bos_token < 0 ? files::json::Value() : files::json::Value(config.bos_token));
  object.set("eos_token_id", token_ids(config.eos_tokens));
  object.set("pad_token_id",
             config.pad_token < 0 ? files::json::Value() : files::json::Value(config.pad_token));
}

// Files have q, k and v of each head side by side; the model has all of q, then k, then v.
NameMap bloom_names(const nn::BloomConfig& config) {
  const RowLayout heads = heads_outermost(3, config.num_heads, config.head_dim());
  const std::string qkv = "transformer.h.*.self_attention.query_key_value";
  NameMap names{
      .prefixes = {"transformer."},
      .rows = {{qkv + ".weight", qkv + ".weight", heads}, {qkv + ".bias", qkv + ".bias", heads}}};
  if (config.tie_word_embeddings) {
    names.tied = {{"lm_head.weight", "transformer.word_embeddings.weight"}};
  }
  return names;
}

}  // namespace

Family bloom_family() {
  return make_family<nn::BloomConfig>({.model_type = "bloom",
                                       .architectures = {"BloomForCausalLM", "BloomModel"},
                                       .parse = parse_bloom_config,
                                       .write = write_bloom_config,
                                       .make = make_family_model<nn::Bloom, nn::BloomConfig>,
                                       .names = bloom_names});
}

}  // namespace zinc::hub
