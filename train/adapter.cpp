#include "train/adapter.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/context.h"
#include "core/error.h"
#include "train/files/atomic_file.h"
#include "train/files/input_file.h"
#include "train/hub/json_fields.h"
#include "train/hub/model_folder.h"
#include "train/hub/weight_folder.h"
#include "train/json/parser.h"
#include "train/json/writer.h"
#include "train/safetensors/writer.h"
#include "zero/together.h"

namespace zinc::train {
namespace {

constexpr std::string_view kConfigFile = "/adapter_config.json";
constexpr std::string_view kWeightsFile = "/adapter_model.safetensors";
// What peft puts before a base model's own names.
constexpr std::string_view kPrefix = "base_model.model.";

std::string name_in_file(std::string_view name) { return concat(kPrefix, name); }

bool has(const WeightReader& adapter, std::string_view name) {
  return adapter.files().find(name_in_file(name)) != nullptr;
}

std::vector<std::string> texts(const json::Value* list) {
  std::vector<std::string> found;
  if (list == nullptr) return found;
  if (list->is_string()) return {list->as_string()};
  for (size_t i = 0; i < list->size(); ++i) found.push_back(list->at(i).as_string());
  return found;
}

// Keys that change the mathematics: absent, null, false or empty is off.
void refuse_where_on(JsonFields& fields, std::string_view key) {
  const json::Value* value = fields.find(key);
  if (value == nullptr) return;
  const bool off = (value->is_bool() && !value->as_bool()) ||
                   (value->is_object() && value->as_object().size() == 0) ||
                   (value->is_array() && value->size() == 0);
  if (!off) value->fail(concat("adapters with ", key, " are not supported"));
}

// Conv1D layers, whose weights lie transposed; a fact for peft about the base.
bool has_transposed_layer(nn::Module& model) {
  const auto all = model.modules();
  return std::any_of(all.begin(), all.end(), [](nn::Module* module) {
    const auto* linear = dynamic_cast<const nn::Linear*>(module);
    return linear != nullptr && linear->options().layout == autograd::WeightLayout::in_out;
  });
}

json::Array list_of(const std::vector<std::string>& names) {
  json::Array list;
  for (const std::string& name : names) list.emplace_back(name);
  return list;
}

std::string config_text(const AdapterConfig& config, nn::Model& model) {
  json::Object object;
  object.set("peft_type", "LORA");
  object.set("task_type", nn::find_interface<nn::CausalLm>(model) != nullptr
                              ? json::Value("CAUSAL_LM")
                              : json::Value());
  object.set("base_model_name_or_path", config.base_model);
  object.set("r", config.lora.rank);
  object.set("lora_alpha", config.lora.alpha);
  object.set("lora_dropout", config.lora.dropout);
  object.set("use_rslora", config.lora.rank_stabilized);
  object.set("target_modules", config.lora.targets == std::vector<std::string>{"all-linear"}
                                   ? json::Value("all-linear")
                                   : json::Value(list_of(config.lora.targets)));
  object.set("modules_to_save", config.lora.modules_to_save.empty()
                                    ? json::Value()
                                    : json::Value(list_of(config.lora.modules_to_save)));
  object.set("bias", "none");
  object.set("fan_in_fan_out", has_transposed_layer(model));
  object.set("inference_mode", true);
  return json::write(json::Value(std::move(object)), 2);
}

void require_finite_values(const std::string& name, const std::vector<float>& values,
                           const std::string& folder) {
  if (std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) return;
  throw NumericsError(concat(folder, ": not saved: ", name, " has values that are not finite"));
}

}  // namespace

AdapterConfig read_adapter_config(const std::string& folder) {
  const std::string file = folder + std::string(kConfigFile);
  if (!file_exists(file)) {
    throw DataError(concat("'", folder, "' is no adapter: there is no file '", file, "'"));
  }
  const json::Value root = json::parse_file(file);
  JsonFields fields(root);
  if (const json::Value* type = fields.find("peft_type");
      type == nullptr || type->as_string() != "LORA") {
    (type == nullptr ? root : *type).fail("only adapters with \"peft_type\": \"LORA\" are known");
  }
  AdapterConfig config;
  config.lora.rank = fields.integer("r", 8);
  config.lora.alpha = fields.number("lora_alpha", 8.0);
  config.lora.dropout = fields.number("lora_dropout", 0.0);
  config.lora.rank_stabilized = fields.boolean("use_rslora", false);
  config.lora.targets = texts(fields.find("target_modules"));
  config.lora.modules_to_save = texts(fields.find("modules_to_save"));
  config.base_model = fields.text("base_model_name_or_path", "");
  for (const std::string_view key :
       {"use_dora", "rank_pattern", "alpha_pattern", "layers_to_transform", "layer_replication",
        "megatron_config", "trainable_token_indices", "lora_bias", "use_qalora",
        "target_parameters", "exclude_modules", "alora_invocation_tokens", "use_bdlora",
        "kasa_config", "velora_config", "monteclora_config"}) {
    refuse_where_on(fields, key);
  }
  if (const json::Value* bias = fields.find("bias");
      bias != nullptr && bias->as_string() != "none") {
    bias->fail("adapters that train biases are not supported; \"none\" is");
  }
  config.lora.validate();
  return config;
}

void save_adapter(zero::Engine& engine, const AdapterConfig& config, const std::string& folder,
                  const SaveOptions& options) {
  comm::World& world = engine.world();
  std::vector<TensorSpec> specs;
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    if (!parameter->requires_grad()) continue;
    specs.push_back({.name = name_in_file(name), .dtype = DType::f32, .shape = parameter->shape()});
  }
  std::optional<AtomicFolder> target;
  std::optional<SafetensorsWriter> writer;
  const auto together = [&](const auto& work) { zero::together(world, "save the adapter", work); };
  together([&] {
    if (!world.is_main()) return;
    target.emplace(folder);
    writer.emplace(target->path() + std::string(kWeightsFile), specs);
  });
  visit_adapter(engine, [&](const std::string& name, const std::vector<float>& values) {
    together([&] {
      if (!options.allow_damaged) require_finite_values(name, values, folder);
      if (!world.is_main()) return;
      const auto count = static_cast<int64_t>(values.size());
      writer->write(name_in_file(name), 0,
                    ConstView(values.data(), DType::f32, Shape{count}, kCpu));
    });
  });
  together([&] {
    if (!world.is_main()) return;
    writer->commit();
    write_file_atomically(target->path() + std::string(kConfigFile),
                          config_text(config, engine.model()));
    if (!options.tokenizer_folder.empty()) {
      for (const auto& [name, text] : read_tokenizer_files(options.tokenizer_folder)) {
        write_file_atomically(target->path() + "/" + name, text);
      }
    }
    target->commit(options.replace);
  });
}

void visit_adapter(
    zero::Engine& engine,
    const std::function<void(const std::string& name, const std::vector<float>& values)>& take) {
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    if (!parameter->requires_grad()) continue;
    const std::vector<float> values = engine.parameter(name).to_vector<float>();
    if (take) take(name, values);
  }
}

AdaptedWeights::AdaptedWeights(nn::Module& model, const nn::WeightSource* base,
                               const std::string& folder)
    : base_(base), initial_(Context::current().random().seed()) {
  if (folder.empty()) return;
  adapter_.emplace(WeightFolder::open(folder + std::string(kWeightsFile)));
  std::vector<WeightSpec> wanted;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (nn::is_lora_parameter(name) || has(*adapter_, name)) {
      wanted.push_back({.name = name_in_file(name), .shape = parameter->shape()});
    }
  }
  adapter_->require_match(wanted);
}

std::optional<Shape> AdaptedWeights::shape_of(const autograd::Parameter& parameter) const {
  if (adapter_ && has(*adapter_, parameter.name())) return parameter.shape();
  if (base_ == nullptr || nn::is_lora_parameter(parameter.name())) return parameter.shape();
  return base_->shape_of(parameter);
}

void AdaptedWeights::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  if (adapter_ && has(*adapter_, parameter.name())) {
    adapter_->read(name_in_file(parameter.name()), parameter.shape(), begin, out);
  } else if (base_ == nullptr || nn::is_lora_parameter(parameter.name())) {
    initial_.read(parameter, begin, out);
  } else {
    base_->read(parameter, begin, out);
  }
}

}  // namespace zinc::train
