// hub/model_config.h: a model's config.json, as Hugging Face's transformers reads and writes
// it.
//
// Keys that are absent have transformers' defaults. Settings that zinc does not support are refused
// by name, never ignored; keys without an effect on the model (use_cache, _name_or_path, ...) are
// kept.
#pragma once

#include <any>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "files/json/value.h"
#include "hub/name_map.h"
#include "hub/tuning.h"
#include "nn/models/gpt2_config.h"
#include "nn/models/llama_config.h"

namespace zinc::hub {

struct Family;
struct ModelConfigFile;
struct ModelObjective;

// Any family's config struct, and the family's row (hub/family.h). A value: copies are
// independent, equal ones are of one family with equal structs. Default-constructed it holds none,
// and functions that need one throw InvalidArgument.
class ModelConfig {
 public:
  ModelConfig() = default;
  // Finds the row by config.model_type(). InvalidArgument where there is none.
  template <class C>
  requires(!std::same_as<C, ModelConfig> &&
           requires(const C& c) {
             { c.model_type() } -> std::convertible_to<std::string_view>;
           }) ModelConfig(C config)  // NOLINT(google-explicit-constructor)
      : ModelConfig(row_of(config.model_type(), typeid(C)), std::any(std::move(config))) {}
  // `config` holds the row's struct. The row stays where it is: one of families().
  ModelConfig(const Family& family, std::any config);

  bool has_value() const { return family_ != nullptr; }
  const Family& family() const;
  const std::any& value() const { return value_; }
  std::any& value() { return value_; }

  // Null where it holds another struct.
  template <class C>
  const C* get_if() const {
    return std::any_cast<C>(&value_);
  }
  template <class C>
  C* get_if() {
    return std::any_cast<C>(&value_);
  }
  // InvalidArgument where it holds another struct.
  template <class C>
  const C& as() const {
    const C* found = get_if<C>();
    if (found == nullptr) fail_as();
    return *found;
  }
  template <class C>
  C& as() {
    return const_cast<C&>(std::as_const(*this).as<C>());
  }

  friend bool operator==(const ModelConfig& a, const ModelConfig& b);

 private:
  static const Family& row_of(std::string_view model_type, const std::type_info& config);
  [[noreturn]] void fail_as() const;

  const Family* family_ = nullptr;
  std::any value_;
};

// "gpt2", "llama"
std::string_view model_type(const ModelConfig& config);
// Distinct weights; tied ones count once.
int64_t num_parameters(const ModelConfig& config);
int64_t vocabulary_size(const ModelConfig& config);
void set_vocabulary_size(ModelConfig& config, int64_t size);
int64_t hidden_size(const ModelConfig& config);
int64_t max_positions(const ModelConfig& config);
// Whether each position has its own trained weights, so that the model cannot read longer texts
// than it was trained on.
bool learns_positions(const ModelConfig& config);
ModelObjective objective(const ModelConfig& config);
// The names of classes, in their order, by id2label of the config.json; empty where it has none.
// DataError where they are not those of 0 to n - 1.
std::vector<std::string> class_names(const ModelConfigFile& file);
void set_class_names(ModelConfigFile& file, const std::vector<std::string>& names);
bool ties_word_embeddings(const ModelConfig& config);
std::vector<int64_t> eos_tokens(const ModelConfig& config);
int64_t bos_token(const ModelConfig& config);  // -1: none
int64_t pad_token(const ModelConfig& config);  // -1: none
// The places of the model's weights in files.
NameMap name_map(const ModelConfig& config);

// The family is that of model_type, or of the first of `architectures` where there is no
// model_type. DataError with place for wrong types, for what zinc does not support, and for a key
// that is unknown but nearly spelt like a known one that is absent; ConfigError for values that
// contradict each other.
ModelConfig parse_model_config(const files::json::Value& root);

// The contents of a config.json, and the file itself, so that it can be written again.
struct ModelConfigFile {
  ModelConfig config;
  files::json::Value original{};  // null: the config does not come from a file
  TuningOptions tuning{};         // the part of the model that is trained
  // Parameters that a folder of weights need not hold: of a head that is new. Globs.
  std::vector<std::string> new_parameters{};
  // For a model whose vocabulary has grown: the number of tokens in a folder of weights; 0: all.
  int64_t stored_vocabulary = 0;
};

// The same model with more tokens than its folder of weights has.
void grow_vocabulary(ModelConfigFile& file, int64_t size);

// Gives the model a new head for `num_classes` classes of texts, from one that learns masked tokens
// or has no head. ConfigError for a model that cannot have one.
void become_classifier(ModelConfigFile& file, int64_t num_classes);

// `path`: a config.json, or a folder that holds one.
ModelConfigFile read_model_config(const std::string& path);
// Takes the name of a preset, or a path as read_model_config() does: the values of --model.
// ConfigError where it is neither.
ModelConfigFile find_model_config(const std::string& preset_or_path);
// Names of all presets, "tiny" first.
std::vector<std::string> model_preset_names();

// The name map of a folder of weights: by its config.json, if that is of a known family; else every
// parameter has its own name.
NameMap name_map_of_folder(const std::string& folder);
// The same by the config.json itself.
NameMap name_map_of(const files::json::Value& config_json);

// "bfloat16": how config.json names a dtype.
std::string_view torch_name(DType dtype);
// The dtype in a config.json; f32 if there is none. DataError for a dtype that is no float.
DType dtype_of_config(const files::json::Value& config_json);

// The text of a config.json that transformers loads (4 and 5: rotary settings and dtype in both
// spellings). Keys of `original` that zinc does not know are kept.
std::string model_config_json(const ModelConfig& config, DType dtype,
                              const files::json::Value& original = {});

}  // namespace zinc::hub
