#include "hub/builtin_families.h"
#include "hub/json_fields.h"
#include "nn/models/gpt_neox.h"

namespace zinc::hub {
namespace {

nn::MlpActivation parse_neox_activation(const files::json::Value* value) {
  if (value == nullptr || value->is_string("gelu")) return nn::MlpActivation::gelu_erf;
  if (value->is_string("relu")) return nn::MlpActivation::relu;
  // The tanh formula has three names.
  for (const char* name : {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"}) {
    if (value->is_string(name)) return nn::MlpActivation::gelu_tanh;
  }
  value->fail(
      "this activation is not supported; gelu, gelu_new, gelu_fast, gelu_pytorch_tanh and "
      "relu are");
}

std::string_view neox_activation(nn::MlpActivation activation) {
  return activation == nn::MlpActivation::gelu_erf ? "gelu"
         : activation == nn::MlpActivation::relu   ? "relu"
                                                   : "gelu_new";
}

// transformers 4 has rotary_pct and rotary_emb_base, 5 has rope_parameters with both.
void parse_neox_rotary(JsonFields& fields, nn::GptNeoxConfig& config) {
  config.rotary_fraction = fields.number("rotary_pct", 0.25);
  config.rope_theta = fields.number("rotary_emb_base", 10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const files::json::Value* value = fields.find(key);
    if (value == nullptr) continue;
    JsonFields inner(*value);
    const files::json::Value* type = inner.find({"rope_type", "type"});
    if (type != nullptr && !type->is_string("default")) {
      type->fail("this kind of rotary scaling is not supported; default is");
    }
    config.rotary_fraction = inner.number("partial_rotary_factor", config.rotary_fraction);
    config.rope_theta = inner.number("rope_theta", config.rope_theta);
  }
}

nn::GptNeoxConfig parse_neox_config(const files::json::Value& root) {
  JsonFields fields(root);
  nn::GptNeoxConfig config;
  config.vocab_size = fields.integer("vocab_size", 50432);
  config.max_positions = fields.integer("max_position_embeddings", 2048);
  config.hidden_size = fields.integer("hidden_size", 6144, JsonFields::kWidest);
  config.intermediate_size = fields.integer("intermediate_size", 24576, JsonFields::kWidestInside);
  config.num_layers = fields.integer("num_hidden_layers", 44, JsonFields::kMostLayers);
  config.num_heads = fields.integer("num_attention_heads", 64, JsonFields::kWidest);
  config.activation = parse_neox_activation(fields.find("hidden_act"));
  parse_neox_rotary(fields, config);
  config.parallel_residual = fields.boolean("use_parallel_residual", true);
  config.attention_bias = fields.boolean("attention_bias", true);
  config.layer_norm_epsilon = fields.number("layer_norm_eps", 1e-5);
  config.attention_dropout = fields.number("attention_dropout", 0.0);
  config.hidden_dropout = fields.number("hidden_dropout", 0.0);
  config.initializer_range = fields.number("initializer_range", 0.02);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  const std::vector<int64_t> bos = fields.tokens("bos_token_id", 0);
  config.bos_token = bos.empty() ? -1 : bos.front();
  config.eos_tokens = fields.tokens("eos_token_id", 2);
  fields.refuse_misspelt();
  return config;
}

void write_neox_config(const nn::GptNeoxConfig& config, files::json::Object& object) {
  object.set("architectures", files::json::Array{"GPTNeoXForCausalLM"});
  object.set("model_type", "gpt_neox");
  object.set("vocab_size", config.vocab_size);
  object.set("max_position_embeddings", config.max_positions);
  object.set("hidden_size", config.hidden_size);
  object.set("intermediate_size", config.intermediate_size);
  object.set("num_hidden_layers", config.num_layers);
  object.set("num_attention_heads", config.num_heads);
  object.set("hidden_act", neox_activation(config.activation));
  object.set("rotary_pct", config.rotary_fraction);
  object.set("rotary_emb_base", config.rope_theta);
  object.set("use_parallel_residual", config.parallel_residual);
  object.set("attention_bias", config.attention_bias);
  object.set("layer_norm_eps", config.layer_norm_epsilon);
  object.set("attention_dropout", config.attention_dropout);
  object.set("hidden_dropout", config.hidden_dropout);
  object.set("initializer_range", config.initializer_range);
  object.set("tie_word_embeddings", config.tie_word_embeddings);
  object.set("bos_token_id",
             config.bos_token < 0 ? files::json::Value() : files::json::Value(config.bos_token));
  object.set("eos_token_id", token_ids(config.eos_tokens));
  files::json::Object rotary;
  rotary.set("rope_type", "default");
  rotary.set("partial_rotary_factor", config.rotary_fraction);
  rotary.set("rope_theta", config.rope_theta);
  object.set("rope_parameters", std::move(rotary));
}

// Files have q, k and v of each head side by side; the model has all of q, then k, then v.
NameMap neox_names(const nn::GptNeoxConfig& config) {
  const RowLayout heads = heads_outermost(3, config.num_heads, config.head_dim());
  const std::string qkv = "gpt_neox.layers.*.attention.query_key_value";
  NameMap names{
      .prefixes = {"gpt_neox."},
      .buffers = {"*.attention.bias", "*.attention.masked_bias", "*rotary_emb.inv_freq"},
      .rows = {{qkv + ".weight", qkv + ".weight", heads}, {qkv + ".bias", qkv + ".bias", heads}}};
  names.old_endings = {{.now = "embed_out.weight", .before = "lm_head.weight"}};
  if (config.tie_word_embeddings) names.tied = {{"embed_out.weight", "gpt_neox.embed_in.weight"}};
  return names;
}

}  // namespace

Family gpt_neox_family() {
  return make_family<nn::GptNeoxConfig>({.model_type = "gpt_neox",
                                         .architectures = {"GPTNeoXForCausalLM"},
                                         .parse = parse_neox_config,
                                         .write = write_neox_config,
                                         .make = make_family_model<nn::GptNeox, nn::GptNeoxConfig>,
                                         .names = neox_names});
}

}  // namespace zinc::hub
