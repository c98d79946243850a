// train/hub/config_json.h: one model family's keys of config.json. See model_config.h.
#pragma once

#include "nn/models/gpt2_config.h"
#include "nn/models/llama_config.h"
#include "train/json/value.h"

namespace zinc::train {

nn::Gpt2Config parse_gpt2_config(const json::Value& root);
nn::LlamaConfig parse_llama_config(const json::Value& root);

// Sets the family's keys and leaves the others.
void write_gpt2_config(const nn::Gpt2Config& config, json::Object& object);
void write_llama_config(const nn::LlamaConfig& config, json::Object& object);

// eos_token_id as transformers writes it: null, a number, or a list.
json::Value token_ids(const std::vector<int64_t>& tokens);

}  // namespace zinc::train
