#include "hub/model_config.h"

#include "core/edit_distance.h"
#include "core/error.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "files/nearest_path.h"
#include "hub/family.h"

namespace zinc::hub {

ModelConfig::ModelConfig(const Family& family, std::any config)
    : family_(&family), value_(std::move(config)) {
  require(value_.type() == *family.config_type, "model config: this is no config of the family ",
          family.model_type);
}

const Family& ModelConfig::row_of(std::string_view model_type, const std::type_info& config) {
  const Family* family = find_family(model_type);
  require(family != nullptr, "model config: no family is called \"", model_type, "\"; ",
          known_families(model_type), "; add_family() adds one");
  require(*family->config_type == config, "model config: the family ", model_type,
          " has another config struct");
  return *family;
}

const Family& ModelConfig::family() const {
  require(family_ != nullptr, "model config: it holds none");
  return *family_;
}

void ModelConfig::fail_as() const {
  throw InvalidArgument(
      str("model config: that of the family ", family().model_type, " is another struct"));
}

bool operator==(const ModelConfig& a, const ModelConfig& b) {
  return a.family_ == b.family_ && (a.family_ == nullptr || a.family_->equal(a.value_, b.value_));
}

namespace {

ModelSizes sizes_of(const ModelConfig& config) { return config.family().sizes(config.value()); }

// The row of model_type, or of the first architecture; null where the file names neither.
const Family* named_family(const files::json::Value& root) {
  if (const files::json::Value* type = root.find("model_type"); type != nullptr) {
    return find_family(type->as_string());
  }
  const files::json::Value* names = root.find("architectures");
  if (names == nullptr || names->is_null() || names->size() == 0) return nullptr;
  return find_family_of_architecture(names->at(size_t{0}).as_string());
}

[[noreturn]] void fail_unknown(const files::json::Value& root) {
  const files::json::Value* type = root.find("model_type");
  if (type == nullptr) root.fail("there is no \"model_type\": not a model's config.json");
  const std::string& name = type->as_string();
  type->fail(str("models of type \"", name, "\" are not supported; ", known_families(name)));
}

}  // namespace

std::string_view model_type(const ModelConfig& config) { return config.family().model_type; }
int64_t num_parameters(const ModelConfig& config) {
  return config.family().make(config.value())->num_parameters();
}
int64_t vocabulary_size(const ModelConfig& config) { return sizes_of(config).vocab_size; }
void set_vocabulary_size(ModelConfig& config, int64_t size) {
  config.family().set_vocabulary_size(config.value(), size);
}
int64_t hidden_size(const ModelConfig& config) { return sizes_of(config).hidden_size; }
int64_t max_positions(const ModelConfig& config) { return sizes_of(config).max_positions; }
bool learns_positions(const ModelConfig& config) { return config.family().learns_positions; }

ModelObjective objective(const ModelConfig& config) {
  return config.family().objective(config.value());
}

void become_classifier(ModelConfigFile& file, int64_t num_classes) {
  const ModelConfig before = file.config;
  file.new_parameters = file.config.family().become_classifier(file.config.value(), num_classes);
  if (!file.new_parameters.empty()) return;
  throw ConfigError(
      str(model_type(before), ": a model of this kind gets no head for classes of texts"));
}

void grow_vocabulary(ModelConfigFile& file, int64_t size) {
  const int64_t before = vocabulary_size(file.config);
  require(size > before, "grow_vocabulary: from ", before, " tokens to ", size);
  file.stored_vocabulary = before;
  set_vocabulary_size(file.config, size);
}

std::vector<std::string> class_names(const ModelConfigFile& file) {
  const files::json::Value* ids =
      file.original.is_object() ? file.original.find("id2label") : nullptr;
  std::vector<std::string> names;
  if (ids == nullptr) return names;
  for (size_t i = 0; i < ids->as_object().size(); ++i) {
    names.push_back(ids->at(str(i)).as_string());
  }
  return names;
}

void set_class_names(ModelConfigFile& file, const std::vector<std::string>& names) {
  files::json::Object object =
      file.original.is_object() ? file.original.as_object() : files::json::Object();
  files::json::Object labels, ids;
  for (size_t i = 0; i < names.size(); ++i) {
    labels.set(str(i), names[i]);
    ids.set(names[i], static_cast<int64_t>(i));
  }
  object.set("id2label", std::move(labels));
  object.set("label2id", std::move(ids));
  file.original = std::move(object);
}
bool ties_word_embeddings(const ModelConfig& config) {
  return sizes_of(config).tie_word_embeddings;
}
std::vector<int64_t> eos_tokens(const ModelConfig& config) { return sizes_of(config).eos_tokens; }
int64_t bos_token(const ModelConfig& config) { return sizes_of(config).bos_token; }
int64_t pad_token(const ModelConfig& config) { return sizes_of(config).pad_token; }
NameMap name_map(const ModelConfig& config) { return config.family().names(config.value()); }

ModelConfig parse_model_config(const files::json::Value& root) {
  const Family* family = named_family(root);
  if (family == nullptr) fail_unknown(root);
  ModelConfig config(*family, family->parse(root));
  try {
    family->validate(config.value());
  } catch (const ConfigError& error) {
    throw ConfigError(
        str(root.source() == nullptr ? "" : root.source()->name() + ": ", error.what()));
  }
  return config;
}

ModelConfigFile read_model_config(const std::string& path) {
  const std::string file = files::folder_exists(path) ? path + "/config.json" : path;
  if (!files::file_exists(file)) throw DataError(files::no_such_path("file", file));
  ModelConfigFile result;
  result.original = files::json::parse_file(file);
  result.config = parse_model_config(result.original);
  return result;
}

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const Family* family : families()) {
    for (const FamilyPreset& preset : family->presets) names.push_back(preset.name);
  }
  return names;
}

ModelConfigFile find_model_config(const std::string& preset_or_path) {
  for (const Family* family : families()) {
    for (const FamilyPreset& preset : family->presets) {
      if (preset.name == preset_or_path) return {ModelConfig(*family, preset.config), {}};
    }
  }
  if (!files::file_exists(preset_or_path) && !files::folder_exists(preset_or_path)) {
    std::string known;
    const std::vector<std::string> presets = model_preset_names();
    for (const std::string& name : presets) known += (known.empty() ? "" : ", ") + name;
    const bool is_path = preset_or_path.find('/') != std::string::npos;
    std::string near = is_path ? "" : nearest_name(preset_or_path, presets);
    if (near.empty()) near = files::nearest_path(preset_or_path);
    throw ConfigError(str(
        "model \"", preset_or_path, "\" is neither a preset nor a config.json or a folder with one",
        near.empty() ? "" : str("; did you mean ", near, "?"), "\n  presets: ", known));
  }
  return read_model_config(preset_or_path);
}

NameMap name_map_of_folder(const std::string& folder) {
  const std::string file = str(folder, "/config.json");
  return files::file_exists(file) ? name_map_of(files::json::parse_file(file)) : NameMap{};
}

NameMap name_map_of(const files::json::Value& config_json) {
  if (named_family(config_json) == nullptr) return {};
  return name_map(parse_model_config(config_json));
}

std::string_view torch_name(DType dtype) {
  return dtype == DType::bf16  ? "bfloat16"
         : dtype == DType::f16 ? "float16"
         : dtype == DType::f64 ? "float64"
                               : "float32";
}

DType dtype_of_config(const files::json::Value& config_json) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const files::json::Value* name = config_json.find(key);
    if (name == nullptr || name->is_null()) continue;
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      if (name->is_string(torch_name(dtype))) return dtype;
    }
    name->fail("expected float32, bfloat16 or float16");
  }
  return DType::f32;
}

std::string model_config_json(const ModelConfig& config, DType dtype,
                              const files::json::Value& original) {
  files::json::Object object;
  if (!original.is_null()) object = original.as_object();
  config.family().write(config.value(), object);
  const std::string_view name = torch_name(dtype);
  object.set("dtype", name);        // transformers 5
  object.set("torch_dtype", name);  // transformers 4
  return files::json::write(files::json::Value(std::move(object)), 2);
}

}  // namespace zinc::hub
