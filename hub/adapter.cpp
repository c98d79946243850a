#include "hub/adapter.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/context.h"
#include "core/convert.h"
#include "core/error.h"
#include "core/glob.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "files/safetensors/writer.h"
#include "hub/json_fields.h"
#include "hub/merged_weights.h"
#include "hub/model_folder.h"
#include "hub/weight_folder.h"

namespace zinc::hub {
namespace {

constexpr std::string_view kWeightsFile = "/adapter_model.safetensors";
constexpr std::string_view kTorchWeightsFile = "/adapter_model.bin";  // of old
// peft's prefix of a base model's own names.
constexpr std::string_view kPrefix = "base_model.model.";

std::string name_in_file(std::string_view name) { return str(kPrefix, name); }

std::vector<std::string> texts(const files::json::Value* list) {
  std::vector<std::string> found;
  if (list == nullptr) return found;
  if (list->is_string()) return {list->as_string()};
  for (const files::json::Value& value : list->as_array()) found.push_back(value.as_string());
  return found;
}

std::vector<int64_t> numbers(const files::json::Value* list) {
  std::vector<int64_t> found;
  if (list == nullptr) return found;
  if (!list->is_array()) return {list->as_int64()};
  for (size_t i = 0; i < list->size(); ++i) found.push_back(list->at(i).as_int64());
  return found;
}

WeightFolder open_weights(const std::string& folder) {
  const std::string file = folder + std::string(kWeightsFile);
  const std::string torch_file = folder + std::string(kTorchWeightsFile);
  if (!files::file_exists(file) && !files::file_exists(torch_file)) {
    throw DataError(str("'", folder, "' has no weights of an adapter: there is neither '", file,
                        "' nor '", torch_file, "'"));
  }
  return WeightFolder::open(files::file_exists(file) ? file : torch_file);
}

// How names end where a whole state was saved, and not what peft takes out of it: with the
// adapter's name, "default", and with the wrapper of a module that is trained whole.
std::vector<OldEnding> endings_of_a_state() {
  std::vector<OldEnding> endings;
  for (const std::string end : {".lora_A.weight", ".lora_B.weight"}) {
    endings.push_back({end, end.substr(0, 7) + ".default.weight"});
  }
  for (const std::string end : {".lora_embedding_A", ".lora_embedding_B"}) {
    endings.push_back({end, end + ".default"});
  }
  for (const char* before : {".default.weight", ".default", ".weight"}) {
    endings.push_back({".lora_magnitude_vector", str(".lora_magnitude_vector", before)});
  }
  for (const std::string end : {".weight", ".bias"}) {
    for (const char* wrapper : {".modules_to_save", ".modules_to_save.default"}) {
      endings.push_back({end, wrapper + end, /*may_repeat=*/true});
    }
  }
  return endings;
}

template <class Take>
void for_each_member(const files::json::Value* object, const Take& take) {
  if (object == nullptr) return;
  for (const files::json::Member& member : object->as_object()) take(member.key, member.value);
}

// Keys that change the mathematics: absent, null, false or empty is off.
void refuse_where_on(JsonFields& fields, std::string_view key) {
  const files::json::Value* value = fields.find(key);
  if (value == nullptr) return;
  const bool off = (value->is_bool() && !value->as_bool()) ||
                   (value->is_object() && value->as_object().size() == 0) ||
                   (value->is_array() && value->size() == 0);
  if (!off) value->fail(str("adapters with ", key, " are not supported"));
}

// Conv1D layers, whose weights lie transposed; a fact for peft about the base.
bool has_transposed_layer(nn::Module& model) {
  const auto all = model.modules();
  return std::any_of(all.begin(), all.end(), [](nn::Module* module) {
    const auto* linear = dynamic_cast<const nn::Linear*>(module);
    return linear != nullptr && linear->options().layout == autograd::WeightLayout::in_out;
  });
}

files::json::Array list_of(const std::vector<std::string>& names) {
  files::json::Array list;
  for (const std::string& name : names) list.emplace_back(name);
  return list;
}

constexpr std::string_view kWeight = ".weight";

// Whether the files hold the layer of `row` in parts, or as a part of another layer.
bool is_in_parts(const NameMap& names, const NameRow& row) {
  return row.rows.their_rows != 0 || std::ranges::count(names.rows, row.ours, &NameRow::ours) > 1 ||
         std::ranges::count(names.rows, row.theirs, &NameRow::theirs) > 1;
}

// peft trains a copy of such a table, and the head keeps the base's: one table here would be two
// there.
void require_no_tied_table(const NameMap& names, nn::Module& model) {
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter->requires_grad() || nn::is_lora_parameter(name)) continue;
    for (const TiedName& tied : names.tied) {
      if (tied.original != name) continue;
      throw ConfigError(str("LoRA: modules_to_save names ", name, ", a table that ", tied.copy,
                            " shares; peft would train a copy and leave the other as it was. "
                            "Give the embedding an adapter (targets), or train without "
                            "adapters (--train)"));
    }
  }
}

}  // namespace

NameMap adapter_names(const NameMap& names, nn::Module& model) {
  // peft saves the base's own table beside the adapter of an embedding, and the base's module, and
  // another copy of the one that is trained whole, where the embeddings were resized.
  NameMap adapter{.prefixes = {std::string(kPrefix)},
                  .buffers = {"*.base_layer.*", "*.original_module.*"},
                  .tied = names.tied,
                  .rows = names.rows,
                  .old_endings = endings_of_a_state()};
  for (const NameRow& row : names.rows) {
    if (!row.ours.ends_with(kWeight) || !row.theirs.ends_with(kWeight)) continue;
    const std::string ours = row.ours.substr(0, row.ours.size() - kWeight.size());
    const std::string theirs = row.theirs.substr(0, row.theirs.size() - kWeight.size());
    for (const auto& [name, parameter] : model.named_parameters()) {
      if (nn::is_lora_parameter(name) && is_in_parts(names, row) &&
          matches_glob(ours + ".lora_*", name)) {
        throw ConfigError(str("LoRA: the model's files have ", ours, " in parts, or as a part of ",
                              theirs, ": an adapter of it cannot be stored as peft's"));
      }
    }
    const RowLayout rows = row.rows.transposed ? RowLayout{} : row.rows;
    for (const char* whole : {".lora_A.weight", ".lora_embedding_A", ".lora_embedding_B"}) {
      adapter.rows.push_back({ours + whole, theirs + whole});
    }
    for (const char* by_row : {".lora_B.weight", ".lora_magnitude_vector"}) {
      adapter.rows.push_back({ours + by_row, theirs + by_row, rows});
    }
  }
  return adapter;
}

AdapterConfig read_adapter_config(const std::string& folder) {
  const std::string file = str(folder, '/', kAdapterConfigFile);
  if (!files::file_exists(file)) {
    throw DataError(str("'", folder, "' is no adapter: there is no file '", file, "'"));
  }
  return parse_adapter_config(files::json::parse_file(file));
}

AdapterConfig parse_adapter_config(const files::json::Value& root) {
  JsonFields fields(root);
  if (const files::json::Value* type = fields.find("peft_type");
      type == nullptr || type->as_string() != "LORA") {
    (type == nullptr ? root : *type).fail("only adapters with \"peft_type\": \"LORA\" are known");
  }
  AdapterConfig config;
  config.lora.rank = fields.integer("r", 8);
  config.lora.alpha = fields.number("lora_alpha", 8.0);
  config.lora.dropout = fields.number("lora_dropout", 0.0);
  config.lora.rank_stabilized = fields.boolean("use_rslora", false);
  config.lora.dora = fields.boolean("use_dora", false);
  const files::json::Value* targets = fields.find("target_modules");
  if (targets != nullptr && targets->is_string() && !targets->is_string("all-linear")) {
    config.lora.target_pattern = targets->as_string();
  } else {
    config.lora.targets = texts(targets);
  }
  if (const files::json::Value* exclude = fields.find("exclude_modules");
      exclude != nullptr && exclude->is_string()) {
    exclude->fail("a pattern of modules to exclude is not supported; a list of their names is");
  }
  config.lora.exclude = texts(fields.find("exclude_modules"));
  config.lora.layers = numbers(fields.find("layers_to_transform"));
  config.lora.block_names = texts(fields.find("layers_pattern"));
  for_each_member(fields.find("rank_pattern"), [&](const std::string& name, const auto& value) {
    config.lora.rank_pattern.emplace_back(name, value.as_int64());
  });
  for_each_member(fields.find("alpha_pattern"), [&](const std::string& name, const auto& value) {
    config.lora.alpha_pattern.emplace_back(name, value.as_double());
  });
  config.lora.modules_to_save = texts(fields.find("modules_to_save"));
  config.base_model = fields.text("base_model_name_or_path", "");
  for (const std::string_view key :
       {"layer_replication", "megatron_config", "trainable_token_indices", "lora_bias",
        "use_qalora", "target_parameters", "alora_invocation_tokens", "use_bdlora", "kasa_config",
        "velora_config", "monteclora_config", "ensure_weight_tying"}) {
    refuse_where_on(fields, key);
  }
  // An adapter with one of these initialisers belongs to a base that the initialiser has changed.
  if (const files::json::Value* initial = fields.find("init_lora_weights");
      initial != nullptr && initial->is_string()) {
    for (const std::string_view kind : {"pissa", "olora", "corda", "loftq", "lora_ga", "mica"}) {
      if (!initial->as_string().starts_with(kind)) continue;
      initial->fail(
          "adapters that change their base at the start are not supported; have peft convert it: "
          "save_pretrained(path_initial_model_for_weight_conversion=...)");
    }
  }
  if (const files::json::Value* bias = fields.find("bias");
      bias != nullptr && bias->as_string() != "none") {
    bias->fail(
        "adapters that train biases are not supported; \"none\" is, with modules that are trained "
        "whole in modules_to_save");
  }
  try {
    config.lora.validate();
  } catch (const ConfigError& error) {
    root.fail(error.what());
  }
  return config;
}

std::string adapter_config_json(const AdapterConfig& config, nn::Module& model) {
  files::json::Object object;
  object.set("peft_type", "LORA");
  object.set("task_type", dynamic_cast<nn::CausalLm*>(&model) != nullptr
                              ? files::json::Value("CAUSAL_LM")
                              : files::json::Value());
  object.set("base_model_name_or_path", config.base_model);
  object.set("r", config.lora.rank);
  object.set("lora_alpha", config.lora.alpha);
  object.set("lora_dropout", config.lora.dropout);
  object.set("use_rslora", config.lora.rank_stabilized);
  object.set("use_dora", config.lora.dora);
  object.set("target_modules", !config.lora.target_pattern.empty()
                                   ? files::json::Value(config.lora.target_pattern)
                               : config.lora.targets == std::vector<std::string>{"all-linear"}
                                   ? files::json::Value("all-linear")
                                   : files::json::Value(list_of(config.lora.targets)));
  object.set("exclude_modules", config.lora.exclude.empty()
                                    ? files::json::Value()
                                    : files::json::Value(list_of(config.lora.exclude)));
  files::json::Array blocks;
  for (const int64_t block : config.lora.layers) blocks.emplace_back(block);
  object.set("layers_to_transform",
             blocks.empty() ? files::json::Value() : files::json::Value(std::move(blocks)));
  object.set("layers_pattern", config.lora.block_names.empty()
                                   ? files::json::Value()
                                   : files::json::Value(list_of(config.lora.block_names)));
  files::json::Object ranks, alphas;
  for (const auto& [pattern, r] : config.lora.rank_pattern) ranks.set(pattern, r);
  for (const auto& [pattern, alpha] : config.lora.alpha_pattern) alphas.set(pattern, alpha);
  object.set("rank_pattern", std::move(ranks));
  object.set("alpha_pattern", std::move(alphas));
  object.set("modules_to_save", config.lora.modules_to_save.empty()
                                    ? files::json::Value()
                                    : files::json::Value(list_of(config.lora.modules_to_save)));
  object.set("bias", "none");
  object.set("fan_in_fan_out", has_transposed_layer(model));
  object.set("inference_mode", true);
  return files::json::write(files::json::Value(std::move(object)), 2);
}

AdapterFolderWriter::AdapterFolderWriter(const std::string& folder, const AdapterConfig& config,
                                         nn::Module& model, const NameMap& base_names,
                                         const SaveOptions& options)
    : target_(folder), replace_(options.replace) {
  const NameMap names = adapter_names(base_names, model);
  std::vector<WeightSpec> trained;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter->requires_grad()) continue;
    trained.push_back({.name = name, .shape = parameter->whole_shape()});
    parts_.emplace(name, tensor_parts(names, name, parameter->whole_shape()));
  }
  std::vector<files::TensorSpec> tensors;
  for (const WeightSpec& tensor : stored_tensors(names, trained)) {
    tensors.push_back(
        {.name = name_in_file(tensor.name), .dtype = DType::f32, .shape = tensor.shape});
  }
  weights_.emplace(target_.path() + std::string(kWeightsFile), tensors);
  files::write_file_atomically(str(target_.path(), '/', kAdapterConfigFile),
                               adapter_config_json(config, model));
  if (options.tokenizer_folder.empty()) return;
  for (const auto& [name, text] : read_tokenizer_files(options.tokenizer_folder)) {
    files::write_file_atomically(target_.path() + "/" + name, text);
  }
}

void AdapterFolderWriter::write(const std::string& name, int64_t begin, ConstView values) {
  const auto parts = parts_.find(name);
  require(parts != parts_.end(), "adapter folder: \"", name, "\" is no trained parameter");
  write_parts(parts->second, begin, values,
              [this](const TensorPart& part, int64_t their_begin, ConstView run) {
                weights_->write(name_in_file(part.name()), their_begin, run);
              });
}

void AdapterFolderWriter::commit() {
  weights_->commit();
  target_.commit(replace_);
}

AdaptedWeights::AdaptedWeights(nn::Module& model, const nn::WeightSource* base,
                               const NameMap& names, const std::string& folder)
    : base_(base), initial_(Context::current().random().seed()) {
  const std::vector<nn::LoraTerms> adapters = nn::lora_terms(model);
  for (const nn::LoraTerms& terms : adapters) {
    if (terms.magnitude != nullptr) decomposed_.emplace(terms.magnitude, terms);
  }
  if (!adapters.empty()) require_no_tied_table(names, model);
  if (folder.empty()) return;
  adapter_.emplace(open_weights(folder), adapter_names(names, model));
  std::vector<WeightSpec> wanted;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (nn::is_lora_parameter(name) || parameter->requires_grad() || in_adapter(*parameter)) {
      wanted.push_back({.name = name, .shape = parameter->whole_shape()});
    }
  }
  adapter_->require_match(wanted);
  adapter_->require_tied();
}

bool AdaptedWeights::in_adapter(const autograd::Parameter& parameter) const {
  return adapter_ && adapter_->shape_of(parameter.name(), parameter.whole_shape()).has_value();
}

std::optional<Shape> AdaptedWeights::shape_of(const autograd::Parameter& parameter) const {
  if (in_adapter(parameter)) return parameter.whole_shape();
  if (base_ == nullptr || nn::is_lora_parameter(parameter.name())) return parameter.whole_shape();
  return base_->shape_of(parameter);
}

void AdaptedWeights::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  if (in_adapter(parameter)) {
    adapter_->read(parameter.name(), parameter.whole_shape(), begin, out);
  } else if (const auto found = decomposed_.find(&parameter); found != decomposed_.end()) {
    const std::vector<double> norms = row_norms(found->second, *this, /*with_adapter=*/false);
    const Shape shape{out.numel()};
    convert_elements(ConstView(&norms[static_cast<size_t>(begin)], DType::f64, shape, kCpu), out);
  } else if (base_ == nullptr || nn::is_lora_parameter(parameter.name())) {
    initial_.read(parameter, begin, out);
  } else {
    base_->read(parameter, begin, out);
  }
}

}  // namespace zinc::hub
