// train/hub/model_config.h: a model's config.json, as Hugging Face's transformers reads and writes
// it.
//
// Keys that are absent have transformers' defaults. What zinc cannot do is refused by name, never
// ignored; keys without an effect on the model (use_cache, _name_or_path, ...) are kept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "nn/models/gpt2_config.h"
#include "nn/models/llama_config.h"
#include "train/json/value.h"

namespace zinc::train {

using ModelConfig = std::variant<nn::Gpt2Config, nn::LlamaConfig>;

// "gpt2", "llama"
std::string_view model_type(const ModelConfig& config);
int64_t num_parameters(const ModelConfig& config);
int64_t vocabulary_size(const ModelConfig& config);
void set_vocabulary_size(ModelConfig& config, int64_t size);
int64_t hidden_size(const ModelConfig& config);
int64_t max_positions(const ModelConfig& config);
// Whether each position has trained weights of its own, so that text longer than what the model was
// trained on is beyond it.
bool learns_positions(const ModelConfig& config);
bool ties_word_embeddings(const ModelConfig& config);
const std::vector<int64_t>& eos_tokens(const ModelConfig& config);

// model_type gpt2 or llama; rope_scaling (with rope_type or type) and rope_parameters. DataError
// with place for wrong types, for what zinc does not support, and for a key that is unknown but
// nearly spelt like a known one that is absent; ConfigError for values that contradict each other.
ModelConfig parse_model_config(const json::Value& root);

// What a file says, and the file itself, so that it can be written again.
struct ModelConfigFile {
  ModelConfig config;
  json::Value original;  // null: the config does not come from a file
};

// `path`: a config.json, or a folder that holds one.
ModelConfigFile read_model_config(const std::string& path);
// A preset's name, or as read_model_config: what --model takes. ConfigError where it is neither.
ModelConfigFile find_model_config(const std::string& preset_or_path);
// Names of all presets, "tiny" first.
std::vector<std::string> model_preset_names();

// "bfloat16": how config.json names a dtype.
std::string_view torch_name(DType dtype);

// The text of a config.json that transformers loads (4 and 5: rotary settings and dtype in both
// spellings). Keys of `original` that zinc does not know are kept.
std::string model_config_json(const ModelConfig& config, DType dtype,
                              const json::Value& original = {});

}  // namespace zinc::train
