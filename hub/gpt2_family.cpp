#include "hub/builtin_families.h"
#include "hub/json_fields.h"
#include "nn/models/gpt2.h"

namespace zinc::hub {
namespace {

nn::Gpt2Activation parse_activation(const files::json::Value* value) {
  if (value == nullptr) return nn::Gpt2Activation::gelu_tanh;
  const std::string& name = value->as_string();
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return nn::Gpt2Activation::gelu_tanh;
  if (name == "gelu") return nn::Gpt2Activation::gelu_erf;
  if (name == "relu") return nn::Gpt2Activation::relu;
  value->fail("this activation is not supported; gelu_new, gelu_pytorch_tanh, gelu and relu are");
}

std::string_view name_of(nn::Gpt2Activation activation) {
  switch (activation) {
    case nn::Gpt2Activation::gelu_tanh:
      return "gelu_new";
    case nn::Gpt2Activation::gelu_erf:
      return "gelu";
    case nn::Gpt2Activation::relu:
      return "relu";
  }
  return "?";
}

nn::Gpt2Config parse_gpt2_config(const files::json::Value& root) {
  constexpr int64_t kEndOfText = 50256;
  JsonFields fields(root);
  nn::Gpt2Config config;
  config.vocab_size = fields.integer("vocab_size", 50257);
  config.max_positions = fields.integer({"n_positions", "n_ctx", "max_position_embeddings"}, 1024);
  config.hidden_size = fields.integer({"n_embd", "hidden_size"}, 768, JsonFields::kWidest);
  config.num_layers = fields.integer({"n_layer", "num_hidden_layers"}, 12, JsonFields::kMostLayers);
  config.num_heads = fields.integer({"n_head", "num_attention_heads"}, 12, JsonFields::kWidest);
  config.intermediate_size = fields.integer("n_inner", 0, JsonFields::kWidestInside);
  config.activation = parse_activation(fields.find("activation_function"));
  config.layer_norm_epsilon = fields.number("layer_norm_epsilon", 1e-5);
  config.embedding_dropout = fields.number("embd_pdrop", 0.1);
  config.attention_dropout = fields.number("attn_pdrop", 0.1);
  config.residual_dropout = fields.number("resid_pdrop", 0.1);
  config.initializer_range = fields.number("initializer_range", 0.02);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  const std::vector<int64_t> bos = fields.tokens("bos_token_id", kEndOfText);
  config.bos_token = bos.empty() ? -1 : bos.front();
  config.eos_tokens = fields.tokens("eos_token_id", kEndOfText);
  fields.require_value("scale_attn_weights", true, "attention without its scale is not supported");
  fields.require_value("scale_attn_by_inverse_layer_idx", false,
                       "attention that is scaled by its layer is not supported");
  fields.require_value("add_cross_attention", false, "cross-attention is not supported");
  fields.refuse_misspelt();
  return config;
}

void write_gpt2_config(const nn::Gpt2Config& config, files::json::Object& object) {
  object.set("architectures", files::json::Array{"GPT2LMHeadModel"});
  object.set("model_type", "gpt2");
  object.set("vocab_size", config.vocab_size);
  object.set("n_positions", config.max_positions);
  object.set("n_ctx", config.max_positions);
  object.set("n_embd", config.hidden_size);
  object.set("n_layer", config.num_layers);
  object.set("n_head", config.num_heads);
  object.set("n_inner", config.intermediate_size > 0 ? files::json::Value(config.intermediate_size)
                                                     : files::json::Value());
  object.set("activation_function", name_of(config.activation));
  object.set("layer_norm_epsilon", config.layer_norm_epsilon);
  object.set("embd_pdrop", config.embedding_dropout);
  object.set("attn_pdrop", config.attention_dropout);
  object.set("resid_pdrop", config.residual_dropout);
  object.set("initializer_range", config.initializer_range);
  object.set("tie_word_embeddings", config.tie_word_embeddings);
  object.set("bos_token_id",
             config.bos_token < 0 ? files::json::Value() : files::json::Value(config.bos_token));
  object.set("eos_token_id", token_ids(config.eos_tokens));
}

NameMap gpt2_names(const nn::Gpt2Config& config) {
  NameMap names{.prefixes = {"transformer."}, .buffers = {"*.attn.bias", "*.attn.masked_bias"}};
  if (config.tie_word_embeddings) names.tied = {{"lm_head.weight", "transformer.wte.weight"}};
  return names;
}

}  // namespace

Family gpt2_family() {
  return make_family<nn::Gpt2Config>({.model_type = "gpt2",
                                      .architectures = {"GPT2LMHeadModel", "GPT2"},
                                      .parse = parse_gpt2_config,
                                      .write = write_gpt2_config,
                                      .make = make_family_model<nn::Gpt2, nn::Gpt2Config>,
                                      .names = gpt2_names,
                                      .learns_positions = true});
}

}  // namespace zinc::hub
