#include "hub/builtin_families.h"
#include "hub/json_fields.h"
#include "nn/models/chatglm.h"

namespace zinc::hub {
namespace {

constexpr const char* kArchitecture = "ChatGLMForConditionalGeneration";

// The first ChatGLM has the same model_type.
void refuse_first_version(JsonFields& fields) {
  for (const char* key : {"position_encoding_2d", "inner_hidden_size"}) {
    if (const files::json::Value* value = fields.find(key)) {
      value->fail(
          "this is a config of the first ChatGLM, which is another model; ChatGLM2 and ChatGLM3 "
          "are supported");
    }
  }
}

nn::ChatGlmConfig parse_chatglm_config(const files::json::Value& root) {
  JsonFields fields(root);
  refuse_first_version(fields);
  nn::ChatGlmConfig config;
  config.vocab_size = fields.integer("padded_vocab_size", 65024);
  if (const files::json::Value* other = fields.find("vocab_size");
      other != nullptr && fields.find("padded_vocab_size") == nullptr) {
    other->fail("ChatGLM's key is padded_vocab_size");
  }
  config.max_positions = fields.integer("seq_length", 2048);
  config.hidden_size = fields.integer("hidden_size", 4096, JsonFields::kWidest);
  config.intermediate_size = fields.integer("ffn_hidden_size", 13696, JsonFields::kWidestInside);
  config.num_layers =
      fields.integer({"num_layers", "num_hidden_layers"}, 28, JsonFields::kMostLayers);
  config.num_heads = fields.integer("num_attention_heads", 32, JsonFields::kWidest);
  const int64_t groups = fields.integer("multi_query_group_num", 1, JsonFields::kWidest);
  config.num_kv_heads = fields.boolean("multi_query_attention", false) ? groups : 0;
  if (const files::json::Value* count = fields.find("multi_query_group_num"); count && groups < 1) {
    count->fail("there is at least one group");
  }
  if (const files::json::Value* channels = fields.find("kv_channels");
      channels != nullptr && channels->as_int64() * config.num_heads != config.hidden_size) {
    channels->fail("kv_channels other than hidden_size / num_attention_heads are not supported");
  }
  config.qkv_bias = fields.boolean("add_qkv_bias", false);
  config.linear_bias = fields.boolean("add_bias_linear", false);
  config.rope_ratio = fields.number("rope_ratio", 1.0);
  config.rms_norm_epsilon = fields.number("layernorm_epsilon", 1e-5);
  config.attention_dropout = fields.number("attention_dropout", 0.0);
  config.hidden_dropout = fields.number("hidden_dropout", 0.0);
  config.initializer_range = fields.number("initializer_range", 0.02);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  const std::vector<int64_t> bos = fields.tokens("bos_token_id", -1);
  config.bos_token = bos.empty() ? -1 : bos.front();
  config.eos_tokens = fields.tokens("eos_token_id", 2);
  const std::vector<int64_t> pad = fields.tokens("pad_token_id", 0);
  config.pad_token = pad.empty() ? -1 : pad.front();
  fields.require_value("rmsnorm", true, "norms with means (LayerNorm) are not supported");
  fields.require_value("post_layer_norm", true, "a model without a last norm is not supported");
  fields.require_value("apply_residual_connection_post_layernorm", false,
                       "residual connections behind the norms are not supported");
  fields.require_value("fp32_residual_connection", false,
                       "hidden states of another dtype than the weights are not supported");
  if (const files::json::Value* bits = fields.find("quantization_bit");
      bits && bits->as_int64() != 0) {
    bits->fail("quantised weights are not supported; take the folder with weights of 16 bits");
  }
  if (const files::json::Value* prefix = fields.find("pre_seq_len")) {
    prefix->fail("prefix tuning is not supported; take the folder of the model itself");
  }
  fields.refuse_misspelt();
  return config;
}

void write_chatglm_config(const nn::ChatGlmConfig& config, files::json::Object& object) {
  object.set("architectures", files::json::Array{kArchitecture});
  object.set("model_type", "chatglm");
  object.set("padded_vocab_size", config.vocab_size);
  // Published files also have vocab_size, which a loader may read.
  if (object.find("vocab_size") != nullptr) object.set("vocab_size", config.vocab_size);
  object.set("seq_length", config.max_positions);
  object.set("hidden_size", config.hidden_size);
  object.set("ffn_hidden_size", config.intermediate_size);
  object.set("num_layers", config.num_layers);
  if (object.find("num_hidden_layers") != nullptr) {
    object.set("num_hidden_layers", config.num_layers);
  }
  object.set("num_attention_heads", config.num_heads);
  object.set("kv_channels", config.head_dim());
  object.set("multi_query_attention", config.num_kv_heads > 0);
  object.set("multi_query_group_num", config.kv_heads());
  object.set("add_qkv_bias", config.qkv_bias);
  object.set("add_bias_linear", config.linear_bias);
  object.set("rope_ratio", config.rope_ratio);
  object.set("layernorm_epsilon", config.rms_norm_epsilon);
  object.set("attention_dropout", config.attention_dropout);
  object.set("hidden_dropout", config.hidden_dropout);
  if (config.initializer_range != 0.02 || object.find("initializer_range") != nullptr) {
    object.set("initializer_range", config.initializer_range);
  }
  object.set("tie_word_embeddings", config.tie_word_embeddings);
  object.set("rmsnorm", true);
  object.set("post_layer_norm", true);
  object.set("original_rope", true);
  object.set("apply_residual_connection_post_layernorm", false);
  object.set("fp32_residual_connection", false);
  if (config.bos_token >= 0) object.set("bos_token_id", config.bos_token);
  object.set("eos_token_id", token_ids(config.eos_tokens));
  object.set("pad_token_id",
             config.pad_token < 0 ? files::json::Value() : files::json::Value(config.pad_token));
}

NameMap chatglm_names(const nn::ChatGlmConfig& config) {
  NameMap names{.prefixes = {"transformer."}, .buffers = {"*rotary_pos_emb.inv_freq"}};
  if (config.tie_word_embeddings) {
    names.tied = {
        {"transformer.output_layer.weight", "transformer.embedding.word_embeddings.weight"}};
  }
  return names;
}

}  // namespace

Family chatglm_family() {
  return make_family<nn::ChatGlmConfig>({.model_type = "chatglm",
                                         .architectures = {"ChatGLM"},
                                         .parse = parse_chatglm_config,
                                         .write = write_chatglm_config,
                                         .make = make_family_model<nn::ChatGlm, nn::ChatGlmConfig>,
                                         .names = chatglm_names});
}

}  // namespace zinc::hub
