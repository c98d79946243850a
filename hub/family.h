// hub/family.h: a model family as one row of a table.
//
// A row says all that zinc needs to know of a family beside the model itself: what config.json
// calls it, how config.json is read and written, how the model is made, where its weights lie in
// files. make_family() makes it from a config struct:
//
//   Family gpt2_family() {
//     return make_family<nn::Gpt2Config>({.model_type = "gpt2",
//                                         .architectures = {"GPT2LMHeadModel", "GPT2"},
//                                         .parse = parse_gpt2_config,
//                                         .write = write_gpt2_config,
//                                         .make = make_family_model<nn::Gpt2, nn::Gpt2Config>,
//                                         .names = gpt2_names,
//                                         .learns_positions = true});
//   }
//
// Families that zinc has: builtin_families.h. A program of one's own adds its rows by add_family().
#pragma once

#include <any>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "files/json/value.h"
#include "hub/name_map.h"
#include "nn/model.h"

namespace zinc::hub {

// The sizes that every language model has, read from any family's config.
struct ModelSizes {
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // longest sequence
  int64_t hidden_size = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t mlp_size = 0;
  bool tie_word_embeddings = false;        // the head shares the embedding
  int64_t bos_token = -1, pad_token = -1;  // -1: none
  std::vector<int64_t> eos_tokens{};
};

// The kind of target that a model learns from a text.
enum class Objective : uint8_t {
  next_tokens,    // the tokens that follow each: decoders
  answer,         // another text, written after all of it was read: encoders with a decoder
  class_of_text,  // one of num_classes
  classes_of_tokens,
  masked_tokens,
  none,
};

struct ModelObjective {
  Objective kind = Objective::next_tokens;
  int64_t num_classes = 0;
};

template <class C>
concept FamilyConfig = std::copyable<C> && std::equality_comparable<C> && requires(const C& c) {
  { c.model_type() } -> std::convertible_to<std::string_view>;
  { c.vocab_size } -> std::convertible_to<int64_t>;
  { c.max_positions } -> std::convertible_to<int64_t>;
  { c.hidden_size } -> std::convertible_to<int64_t>;
  { c.num_heads } -> std::convertible_to<int64_t>;
  { c.head_dim() } -> std::convertible_to<int64_t>;
  { c.mlp_size() } -> std::convertible_to<int64_t>;
  { c.tie_word_embeddings } -> std::convertible_to<bool>;
  { c.eos_tokens } -> std::convertible_to<std::vector<int64_t>>;
  c.validate();
};

struct FamilyPreset {
  std::string name;  // "gpt2-124m"
  std::any config;
};

// A row. The std::any of its functions hold the family's config struct.
struct Family {
  std::string model_type;  // config.json's: "gpt2"
  // Beginnings of config.json's architectures, for files without model_type: "GPT2LMHeadModel".
  std::vector<std::string> architectures;
  bool learns_positions = false;  // each position has its own trained weights
  std::vector<FamilyPreset> presets;
  const std::type_info* config_type = nullptr;

  std::function<std::any(const files::json::Value& config_json)> parse;
  std::function<void(const std::any&, files::json::Object&)> write;
  std::function<std::unique_ptr<nn::Model>(const std::any&)> make;
  std::function<NameMap(const std::any&)> names;
  std::function<ModelSizes(const std::any&)> sizes;
  std::function<ModelObjective(const std::any&)> objective;
  std::function<void(std::any&, int64_t)> set_vocabulary_size;
  std::function<std::vector<std::string>(std::any&, int64_t)> become_classifier;
  std::function<void(const std::any&)> validate;
  std::function<bool(const std::any&, const std::any&)> equal;
};

// The arguments of make_family().
template <class C>
struct FamilyRow {
  std::string model_type;
  std::vector<std::string> architectures{};
  // Throws DataError with its place for a setting that is not supported. Absent keys have
  // transformers' defaults.
  C (*parse)(const files::json::Value& config_json);
  // Sets the family's keys, architectures and model_type among them, and leaves the others.
  void (*write)(const C& config, files::json::Object& object);
  std::unique_ptr<nn::Model> (*make)(const C& config);
  NameMap (*names)(const C& config);
  bool learns_positions = false;
  ModelObjective (*objective)(const C& config) = nullptr;  // null: next_tokens
  // Gives a model of another task a head for `num_classes` classes of texts. Returns globs for the
  // parameters of the new head, which a folder of the old model need not hold; empty: the model
  // cannot have such a head. May be null.
  std::vector<std::string> (*become_classifier)(C& config, int64_t num_classes) = nullptr;
};

template <class M, class C>
std::unique_ptr<nn::Model> make_family_model(const C& config) {
  return std::make_unique<M>(config);
}

namespace detail {

// Members that not every config has.
template <class C>
void add_other_sizes(const C& config, ModelSizes& sizes) {
  sizes.num_kv_heads = config.num_heads;
  if constexpr (requires { config.kv_heads(); }) sizes.num_kv_heads = config.kv_heads();
  if constexpr (requires { config.bos_token; }) sizes.bos_token = config.bos_token;
  if constexpr (requires { config.pad_token; }) sizes.pad_token = config.pad_token;
}

template <class C>
std::vector<FamilyPreset> presets_of(std::string_view model_type) {
  std::vector<FamilyPreset> presets;
  if constexpr (requires { C::preset_names(); }) {
    for (const std::string_view name : C::preset_names()) {
      C config = C::preset(name);
      if (config.model_type() == model_type) presets.push_back({std::string(name), config});
    }
  }
  return presets;
}

}  // namespace detail

// Presets are those of C::preset_names(), where C has them, with this model_type.
template <class C>
Family make_family(const FamilyRow<C>& row) {
  static_assert(
      FamilyConfig<C>,
      "a family's config struct is copyable and comparable and has the members "
      "vocab_size, max_positions, hidden_size, num_heads, tie_word_embeddings, eos_tokens "
      "(std::vector<int64_t>) and the functions model_type(), head_dim(), mlp_size(), "
      "validate(), all const; bos_token, pad_token and kv_heads() are read where they "
      "are there (hub/family.h)");
  const auto of = [](const std::any& config) -> const C& {
    return std::any_cast<const C&>(config);
  };
  return {
      .model_type = row.model_type,
      .architectures = row.architectures,
      .learns_positions = row.learns_positions,
      .presets = detail::presets_of<C>(row.model_type),
      .config_type = &typeid(C),
      .parse = [parse =
                    row.parse](const files::json::Value& root) { return std::any(parse(root)); },
      .write = [write = row.write, of](const std::any& c,
                                       files::json::Object& object) { write(of(c), object); },
      .make = [make = row.make, of](const std::any& c) { return make(of(c)); },
      .names = [names = row.names, of](const std::any& c) { return names(of(c)); },
      .sizes =
          [of](const std::any& any) {
            const C& c = of(any);
            ModelSizes sizes{.vocab_size = c.vocab_size,
                             .max_positions = c.max_positions,
                             .hidden_size = c.hidden_size,
                             .num_heads = c.num_heads,
                             .head_dim = c.head_dim(),
                             .mlp_size = c.mlp_size(),
                             .tie_word_embeddings = c.tie_word_embeddings,
                             .eos_tokens = c.eos_tokens};
            detail::add_other_sizes(c, sizes);
            return sizes;
          },
      .objective =
          [objective = row.objective, of](const std::any& c) {
            return objective == nullptr ? ModelObjective{} : objective(of(c));
          },
      .set_vocabulary_size = [](std::any& c,
                                int64_t size) { std::any_cast<C&>(c).vocab_size = size; },
      .become_classifier =
          [become = row.become_classifier](std::any& c, int64_t classes) {
            return become == nullptr ? std::vector<std::string>{}
                                     : become(std::any_cast<C&>(c), classes);
          },
      .validate = [of](const std::any& c) { of(c).validate(); },
      .equal = [of](const std::any& a, const std::any& b) { return of(a) == of(b); },
  };
}

// Adds a row to the table, for the rest of the program. InvalidArgument for a model_type or a
// preset's name that is there already, or a row that lacks one of its functions. Safe to call while
// other threads use the table.
void add_family(Family family);

// All rows, zinc's own first. Rows stay where they are.
std::vector<const Family*> families();
// Null where there is none.
const Family* find_family(std::string_view model_type);
// The family with the longest of its `architectures` that the name begins with; null where there is
// none.
const Family* find_family_of_architecture(std::string_view architecture);
// The part of an error's text behind "models of type "gtp2" are not supported": the nearest family,
// and all families.
std::string known_families(std::string_view model_type);

}  // namespace zinc::hub
