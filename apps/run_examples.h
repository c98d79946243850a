// apps/run_examples.h: the options that say how records become examples.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/examples/example_maker.h"
#include "data/examples/make_examples.h"
#include "hub/model_config.h"

namespace CLI {
class App;
}

namespace zinc::apps {

struct ExampleArguments {
  std::string fields;
  std::string pattern;
  std::string chat;
  std::string mask = "prompt";
  bool no_end = false;
  int64_t skip_bad = 0;
  // For a classifier; empty: the classes in the model's config.json.
  std::vector<std::string> classes;
  double mlm_probability = 0.0;  // for a model of masked tokens; 0: not given

  // True if an option was given that only examples have.
  bool given() const;
};

void add_example_options(CLI::App& verb, ExampleArguments& arguments);

// The settings from the options and, where these say nothing, from the first records of `file`.
// `tokenizer` may be null if records hold token ids; otherwise that is a ConfigError. Limits are
// the model's: tokens of an example, and the vocabulary (0: the tokenizer's).
struct ExampleLimits {
  int64_t max_tokens = 0;
  int64_t vocabulary_size = 0;
};
data::ExampleSettings settings_of(const ExampleArguments& arguments, const std::string& file,
                                  const text::Tokenizer* tokenizer, const ExampleLimits& limits);

// Sets the objective of the model: it continues a text, answers it, gives its class, or guesses its
// tokens. ConfigError for settings that do not fit. DataError if --classes, or the config.json, do
// not name as many classes as the model has.
void set_objective(data::ExampleSettings& settings, const hub::ModelConfigFile& model,
                   const ExampleArguments& arguments);

// "prompt=question, answer=reply; pattern {}\n{}; trained behind the prompt".
std::string describe_settings(const data::ExampleSettings& settings);
// Notes for a person before training with these settings. `folder`: the tokenizer's; empty: none.
std::vector<std::string> notes_on(const data::ExampleSettings& settings,
                                  const text::Tokenizer* tokenizer, const std::string& folder);
// "1000 records, 990 examples, ...", and a line each for the examples that were cut, left out or
// damaged.
std::vector<std::string> lines_of(const data::ExampleCounts& counts);

}  // namespace zinc::apps
