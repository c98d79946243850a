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
  std::vector<std::string> classes;  // of a classifier; empty: those of the model's config.json
  double mlm_probability = 0.0;      // of a model of masked tokens; 0: not given

  // One of the options that only examples have was given.
  bool given() const;
};

void add_example_options(CLI::App& verb, ExampleArguments& arguments);

// What the options say, and what looking at the first records of `file` says where they do not.
// `tokenizer` may be null: records hold token ids then, else this is a ConfigError. Limits are the
// model's: tokens of an example, and the vocabulary (0: the tokenizer's).
struct ExampleLimits {
  int64_t max_tokens = 0;
  int64_t vocabulary_size = 0;
};
data::ExampleSettings settings_of(const ExampleArguments& arguments, const std::string& file,
                                  const text::Tokenizer* tokenizer, const ExampleLimits& limits);

// What a model learns of them: it continues a text, answers it, says its class, or guesses tokens
// of it. ConfigError for
// settings that do not fit. DataError where --classes, or the config.json, do not name as many
// classes as the model has.
void set_objective(data::ExampleSettings& settings, const hub::ModelConfigFile& model,
                   const ExampleArguments& arguments);

// "prompt=question, answer=reply; pattern {}\n{}; trained behind the prompt".
std::string describe_settings(const data::ExampleSettings& settings);
// What a person should know before training with them. `folder`: the tokenizer's; empty: none.
std::vector<std::string> notes_on(const data::ExampleSettings& settings,
                                  const text::Tokenizer* tokenizer, const std::string& folder);
// "1000 records, 990 examples, ..." and a line each for what was cut, left out or damaged.
std::vector<std::string> lines_of(const data::ExampleCounts& counts);

}  // namespace zinc::apps
