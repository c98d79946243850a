#include "core/error.h"
#include "hub/builtin_families.h"
#include "hub/json_fields.h"
#include "nn/models/llama.h"

namespace zinc::hub {
namespace {

using Kind = nn::RopeScaling::Kind;

Kind parse_rope_type(JsonFields& fields) {
  const files::json::Value* value = fields.find({"rope_type", "type"});
  if (value == nullptr) return Kind::none;
  const std::string& name = value->as_string();
  if (name == "default") return Kind::none;
  if (name == "linear") return Kind::linear;
  if (name == "llama3") return Kind::llama3;
  value->fail("this kind of rotary scaling is not supported; default, linear and llama3 are");
}

nn::RopeScaling parse_scaling(const files::json::Value& value) {
  JsonFields fields(value);
  nn::RopeScaling scaling;
  scaling.kind = parse_rope_type(fields);
  if (const files::json::Value* part = fields.find("partial_rotary_factor");
      part != nullptr && part->as_double() != 1.0) {
    part->fail("rotary embeddings of a part of the head are not supported");
  }
  const auto needed = [&](std::string_view key) {
    const files::json::Value* found = fields.find(key);
    if (found == nullptr) value.fail(str("key \"", key, "\" is missing"));
    return found;
  };
  if (scaling.kind != Kind::none) scaling.factor = needed("factor")->as_double();
  if (scaling.kind == Kind::llama3) {
    scaling.low_freq_factor = needed("low_freq_factor")->as_double();
    scaling.high_freq_factor = needed("high_freq_factor")->as_double();
    scaling.original_max_positions = needed("original_max_position_embeddings")->as_int64();
  }
  return scaling;
}

// transformers 4 has rope_theta and rope_scaling, 5 has rope_parameters with both; a file may have
// all of them, and then they must agree.
void parse_rotary(JsonFields& fields, nn::LlamaConfig& config) {
  const files::json::Value* scaling = fields.find("rope_scaling");
  const files::json::Value* parameters = fields.find("rope_parameters");
  const files::json::Value* theta = fields.find("rope_theta");
  if (scaling != nullptr) config.rope_scaling = parse_scaling(*scaling);
  if (theta != nullptr) config.rope_theta = theta->as_double();
  if (parameters == nullptr) return;

  const nn::RopeScaling newer = parse_scaling(*parameters);
  if (scaling != nullptr && newer != config.rope_scaling) {
    parameters->fail("rope_scaling says something else");
  }
  config.rope_scaling = newer;
  const files::json::Value* inner = parameters->find("rope_theta");
  if (inner == nullptr || inner->is_null()) return;
  if (theta != nullptr && inner->as_double() != config.rope_theta) {
    inner->fail("the rope_theta outside says something else");
  }
  config.rope_theta = inner->as_double();
}

files::json::Object scaling_object(const nn::RopeScaling& scaling) {
  files::json::Object object;
  object.set("rope_type", scaling.kind == Kind::llama3   ? "llama3"
                          : scaling.kind == Kind::linear ? "linear"
                                                         : "default");
  if (scaling.kind == Kind::none) return object;
  object.set("factor", scaling.factor);
  if (scaling.kind == Kind::linear) return object;
  object.set("low_freq_factor", scaling.low_freq_factor);
  object.set("high_freq_factor", scaling.high_freq_factor);
  object.set("original_max_position_embeddings", scaling.original_max_positions);
  return object;
}

// Reads the keys that all kinds have, with a family's defaults.
nn::LlamaConfig parse_decoder(JsonFields& fields, const nn::LlamaConfig& defaults) {
  nn::LlamaConfig config = defaults;
  config.vocab_size = fields.integer("vocab_size", defaults.vocab_size);
  config.max_positions = fields.integer("max_position_embeddings", defaults.max_positions);
  config.hidden_size = fields.integer("hidden_size", 4096, JsonFields::kWidest);
  config.intermediate_size =
      fields.integer("intermediate_size", defaults.intermediate_size, JsonFields::kWidestInside);
  config.num_layers = fields.integer("num_hidden_layers", 32, JsonFields::kMostLayers);
  config.num_heads = fields.integer("num_attention_heads", 32, JsonFields::kWidest);
  config.num_kv_heads =
      fields.integer_or_null("num_key_value_heads", defaults.num_kv_heads, 0, JsonFields::kWidest);
  config.explicit_head_dim =
      fields.integer_or_null("head_dim", defaults.explicit_head_dim, 0, JsonFields::kWidest);
  config.rms_norm_epsilon = fields.number("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  config.attention_dropout = fields.number("attention_dropout", 0.0);
  config.initializer_range = fields.number("initializer_range", 0.02);
  const std::vector<int64_t> bos = fields.tokens("bos_token_id", defaults.bos_token);
  config.bos_token = bos.empty() ? -1 : bos.front();
  config.eos_tokens =
      fields.tokens("eos_token_id", defaults.eos_tokens.empty() ? -1 : defaults.eos_tokens.front());
  parse_rotary(fields, config);
  if (const files::json::Value* activation = fields.find("hidden_act");
      activation != nullptr && !activation->is_string("silu")) {
    activation->fail("this activation is not supported; silu is");
  }
  return config;
}

// The layers from max_window_layers on have windows, where use_sliding_window says so.
void parse_later_windows(JsonFields& fields, nn::LlamaConfig& config) {
  const int64_t window = fields.integer_or_null("sliding_window", 4096, 0);
  const int64_t first = fields.integer("max_window_layers", 28, JsonFields::kMostLayers);
  if (fields.boolean("use_sliding_window", false) && window > 0) {
    config.sliding_window = window;
    config.first_windowed_layer = first;
  }
  const files::json::Value* types = fields.find("layer_types");
  if (types == nullptr) return;
  for (size_t i = 0; i < types->size(); ++i) {
    const int64_t here = config.window_of(static_cast<int64_t>(i));
    if (!types->at(i).is_string(here > 0 ? "sliding_attention" : "full_attention")) {
      types->at(i).fail("only windows in all layers from max_window_layers on are supported");
    }
  }
}

nn::LlamaConfig parse_llama_config(const files::json::Value& root) {
  JsonFields fields(root);
  nn::LlamaConfig config = parse_decoder(fields, {.bos_token = 1, .eos_tokens = {2}});
  config.attention_bias = fields.boolean("attention_bias", false);
  config.mlp_bias = fields.boolean("mlp_bias", false);
  fields.refuse_misspelt();
  return config;
}

nn::LlamaConfig parse_mistral_config(const files::json::Value& root) {
  JsonFields fields(root);
  nn::LlamaConfig config = parse_decoder(fields, {.kind = nn::LlamaKind::mistral,
                                                  .max_positions = 131072,
                                                  .intermediate_size = 14336,
                                                  .num_kv_heads = 8,
                                                  .bos_token = 1,
                                                  .eos_tokens = {2}});
  config.sliding_window = fields.integer_or_null("sliding_window", 4096, 0);
  fields.refuse_misspelt();
  return config;
}

nn::LlamaConfig qwen_defaults(nn::LlamaKind kind) {
  return {.kind = kind,
          .vocab_size = 151936,
          .max_positions = 32768,
          .intermediate_size = 22016,
          .num_kv_heads = 32};
}

nn::LlamaConfig parse_qwen2_config(const files::json::Value& root) {
  JsonFields fields(root);
  nn::LlamaConfig config = parse_decoder(fields, qwen_defaults(nn::LlamaKind::qwen2));
  parse_later_windows(fields, config);
  fields.require_value("use_mrope", false, "rotary positions of images are not supported");
  fields.refuse_misspelt();
  return config;
}

nn::LlamaConfig parse_qwen3_config(const files::json::Value& root) {
  JsonFields fields(root);
  nn::LlamaConfig defaults = qwen_defaults(nn::LlamaKind::qwen3);
  defaults.explicit_head_dim = 128;
  nn::LlamaConfig config = parse_decoder(fields, defaults);
  config.attention_bias = fields.boolean("attention_bias", false);
  parse_later_windows(fields, config);
  fields.refuse_misspelt();
  return config;
}

void write_later_windows(const nn::LlamaConfig& config, files::json::Object& object) {
  object.set("use_sliding_window", config.sliding_window > 0);
  if (config.sliding_window == 0 && object.find("layer_types") == nullptr) return;
  if (config.sliding_window > 0) {
    object.set("sliding_window", config.sliding_window);
    object.set("max_window_layers", config.first_windowed_layer);
  }
  files::json::Array types;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    types.emplace_back(config.window_of(i) > 0 ? "sliding_attention" : "full_attention");
  }
  object.set("layer_types", std::move(types));
}

std::string_view llama_architecture(nn::LlamaKind kind) {
  switch (kind) {
    case nn::LlamaKind::llama:
      return "LlamaForCausalLM";
    case nn::LlamaKind::mistral:
      return "MistralForCausalLM";
    case nn::LlamaKind::qwen2:
      return "Qwen2ForCausalLM";
    case nn::LlamaKind::qwen3:
      return "Qwen3ForCausalLM";
  }
  return "?";
}

void write_llama_config(const nn::LlamaConfig& config, files::json::Object& object) {
  using nn::LlamaKind;
  object.set("architectures", files::json::Array{llama_architecture(config.kind)});
  object.set("model_type", config.model_type());
  object.set("vocab_size", config.vocab_size);
  object.set("max_position_embeddings", config.max_positions);
  object.set("hidden_size", config.hidden_size);
  object.set("intermediate_size", config.intermediate_size);
  object.set("num_hidden_layers", config.num_layers);
  object.set("num_attention_heads", config.num_heads);
  object.set("num_key_value_heads", config.kv_heads());
  // Qwen2's config has no key head_dim.
  if (config.kind != LlamaKind::qwen2 || config.explicit_head_dim > 0) {
    object.set("head_dim", config.head_dim());
  }
  object.set("hidden_act", "silu");
  object.set("rms_norm_eps", config.rms_norm_epsilon);
  object.set("tie_word_embeddings", config.tie_word_embeddings);
  if (config.kind == LlamaKind::llama || config.kind == LlamaKind::qwen3) {
    object.set("attention_bias", config.attention_bias);
  }
  if (config.kind == LlamaKind::llama) object.set("mlp_bias", config.mlp_bias);
  object.set("attention_dropout", config.attention_dropout);
  object.set("initializer_range", config.initializer_range);
  object.set("bos_token_id",
             config.bos_token < 0 ? files::json::Value() : files::json::Value(config.bos_token));
  object.set("eos_token_id", token_ids(config.eos_tokens));
  if (config.kind == LlamaKind::mistral) {
    object.set("sliding_window", config.sliding_window > 0
                                     ? files::json::Value(config.sliding_window)
                                     : files::json::Value());
  }
  if (config.kind == LlamaKind::qwen2 || config.kind == LlamaKind::qwen3) {
    write_later_windows(config, object);
  }

  files::json::Object parameters = scaling_object(config.rope_scaling);
  object.set("rope_theta", config.rope_theta);
  object.set("rope_scaling", config.rope_scaling.kind == Kind::none
                                 ? files::json::Value()
                                 : files::json::Value(parameters));
  parameters.set("rope_theta", config.rope_theta);
  object.set("rope_parameters", std::move(parameters));
}

NameMap llama_names(const nn::LlamaConfig& config) {
  NameMap names{.prefixes = {"model."}, .buffers = {"*rotary_emb.inv_freq"}};
  if (config.tie_word_embeddings) names.tied = {{"lm_head.weight", "model.embed_tokens.weight"}};
  return names;
}

Family row_of(nn::LlamaKind kind, nn::LlamaConfig (*parse)(const files::json::Value&)) {
  const nn::LlamaConfig config{.kind = kind};
  return make_family<nn::LlamaConfig>({.model_type = std::string(config.model_type()),
                                       .architectures = {std::string(llama_architecture(kind))},
                                       .parse = parse,
                                       .write = write_llama_config,
                                       .make = make_family_model<nn::Llama, nn::LlamaConfig>,
                                       .names = llama_names});
}

}  // namespace

Family llama_family() {
  Family family = row_of(nn::LlamaKind::llama, parse_llama_config);
  family.architectures.emplace_back("Llama");
  return family;
}

Family mistral_family() { return row_of(nn::LlamaKind::mistral, parse_mistral_config); }
Family qwen2_family() { return row_of(nn::LlamaKind::qwen2, parse_qwen2_config); }
Family qwen3_family() { return row_of(nn::LlamaKind::qwen3, parse_qwen3_config); }

}  // namespace zinc::hub
