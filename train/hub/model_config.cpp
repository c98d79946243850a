#include "train/hub/model_config.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "train/files/input_file.h"
#include "train/hub/config_json.h"
#include "train/json/parser.h"
#include "train/json/writer.h"

namespace zinc::train {
namespace {

template <class Read>
auto on(const ModelConfig& config, Read&& read) {
  return std::visit(std::forward<Read>(read), config);
}

// model_type, or what the first architecture implies.
std::string find_model_type(const json::Value& root) {
  if (const json::Value* type = root.find("model_type"); type != nullptr) return type->as_string();
  if (const json::Value* names = root.find("architectures");
      names != nullptr && !names->is_null() && names->size() > 0) {
    const std::string& name = names->at(size_t{0}).as_string();
    if (name.starts_with("GPT2")) return "gpt2";
    if (name.starts_with("Llama")) return "llama";
  }
  root.fail("there is no \"model_type\": not a model's config.json");
}

}  // namespace

std::string_view model_type(const ModelConfig& config) {
  return std::holds_alternative<nn::Gpt2Config>(config) ? "gpt2" : "llama";
}
int64_t num_parameters(const ModelConfig& config) {
  return on(config, [](const auto& c) { return c.num_parameters(); });
}
int64_t vocabulary_size(const ModelConfig& config) {
  return on(config, [](const auto& c) { return c.vocab_size; });
}
void set_vocabulary_size(ModelConfig& config, int64_t size) {
  std::visit([&](auto& c) { c.vocab_size = size; }, config);
}
int64_t hidden_size(const ModelConfig& config) {
  return on(config, [](const auto& c) { return c.hidden_size; });
}
int64_t max_positions(const ModelConfig& config) {
  return on(config, [](const auto& c) { return c.max_positions; });
}
bool learns_positions(const ModelConfig& config) {
  return std::holds_alternative<nn::Gpt2Config>(config);
}
bool ties_word_embeddings(const ModelConfig& config) {
  return on(config, [](const auto& c) { return c.tie_word_embeddings; });
}
const std::vector<int64_t>& eos_tokens(const ModelConfig& config) {
  return std::visit([](const auto& c) -> const std::vector<int64_t>& { return c.eos_tokens; },
                    config);
}

ModelConfig parse_model_config(const json::Value& root) {
  const std::string type = find_model_type(root);
  ModelConfig config;
  if (type == "gpt2") {
    config = parse_gpt2_config(root);
  } else if (type == "llama") {
    config = parse_llama_config(root);
  } else {
    const json::Value* place = root.find("model_type");
    (place != nullptr ? *place : root)
        .fail(concat("models of type \"", type, "\" are not supported; gpt2 and llama are"));
  }
  try {
    on(config, [](const auto& c) { c.validate(); });
  } catch (const ConfigError& error) {
    throw ConfigError(
        concat(root.source() == nullptr ? "" : root.source()->name() + ": ", error.what()));
  }
  return config;
}

ModelConfigFile read_model_config(const std::string& path) {
  const std::string file = folder_exists(path) ? path + "/config.json" : path;
  if (!file_exists(file)) throw DataError(concat("there is no file '", file, "'"));
  ModelConfigFile result;
  result.original = json::parse_file(file);
  result.config = parse_model_config(result.original);
  return result;
}

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const std::string_view name : nn::Gpt2Config::preset_names()) names.emplace_back(name);
  for (const std::string_view name : nn::LlamaConfig::preset_names()) names.emplace_back(name);
  return names;
}

ModelConfigFile find_model_config(const std::string& preset_or_path) {
  const auto is_in = [&](auto names) {
    return std::find(names.begin(), names.end(), preset_or_path) != names.end();
  };
  if (is_in(nn::Gpt2Config::preset_names())) {
    return {nn::Gpt2Config::preset(preset_or_path), {}};
  }
  if (is_in(nn::LlamaConfig::preset_names())) {
    return {nn::LlamaConfig::preset(preset_or_path), {}};
  }
  if (!file_exists(preset_or_path) && !folder_exists(preset_or_path)) {
    std::string known;
    for (const std::string& name : model_preset_names())
      known += (known.empty() ? "" : ", ") + name;
    throw ConfigError(concat("model \"", preset_or_path, "\" is neither a preset (", known,
                             ") nor a config.json or a folder with one"));
  }
  return read_model_config(preset_or_path);
}

std::string_view torch_name(DType dtype) {
  return dtype == DType::bf16  ? "bfloat16"
         : dtype == DType::f16 ? "float16"
         : dtype == DType::f64 ? "float64"
                               : "float32";
}

std::string model_config_json(const ModelConfig& config, DType dtype, const json::Value& original) {
  json::Object object;
  if (!original.is_null()) object = original.as_object();
  if (const auto* gpt2 = std::get_if<nn::Gpt2Config>(&config)) {
    write_gpt2_config(*gpt2, object);
  } else {
    write_llama_config(std::get<nn::LlamaConfig>(config), object);
  }
  const std::string_view name = torch_name(dtype);
  object.set("dtype", name);        // transformers 5
  object.set("torch_dtype", name);  // transformers 4
  return json::write(json::Value(std::move(object)), 2);
}

}  // namespace zinc::train
