// apps/generate/generation_options.h: how a model writes, as `zinc generate`, `zinc chat` and `zinc
// evaluate` are told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "generate/generate.h"
#include "hub/model_config.h"
#include "text/tokenizer.h"

namespace CLI {
class App;
}

namespace zinc::apps {

struct GenerationArguments {
  generate::GenerateOptions options{};
  const CLI::App* verb = nullptr;  // the subcommand, which knows the options that were given
  std::string early_stopping = "false";
  std::vector<int32_t> stop_tokens;
  std::vector<std::string> stop_strings;
};

// Filters of tokens, penalties, beams, --context, --seed; defaults are those of `options`. Their
// group is kOfWriting.
void add_sampling_options(CLI::App& verb, generate::GenerateOptions& options);
// The sampling options and the rest: the number of tokens, and the end of a text.
void add_generation_options(CLI::App& verb, GenerationArguments& arguments);

// The tokens that end a text of the model in `folder`, without --stop-token: the end tokens of the
// tokenizer (may be null), config.json and generation_config.json. Throws DataError for a damaged
// file.
std::vector<int32_t> stop_tokens_of(const std::string& folder, const hub::ModelConfig& config,
                                    const text::Tokenizer* tokenizer);

// The positions of a model that writes text; 0: it has no limit. Throws ConfigError for one that
// writes none.
int64_t positions_of_writer(const std::string& folder, const hub::ModelConfig& config);

// The options with early stopping and stop tokens, and with generation_config.json for options that
// were not given. `note` is a line about that file; empty: none. Throws ConfigError for options
// that contradict each other, for a stop token outside the vocabulary, and for a --context that is
// longer than the model, of `positions`; 0: it has no limit.
struct SettledOptions {
  generate::GenerateOptions options;
  std::string note;
};
SettledOptions settled_options(const GenerationArguments& arguments, const std::string& folder,
                               const hub::ModelConfig& config, int64_t positions,
                               const text::Tokenizer* tokenizer);

// WeightFolder::fingerprint() of both; `adapter` may be empty.
uint64_t fingerprint_of_weights(const std::string& model, const std::string& adapter = "");
// All options that decide the texts, except `ends`, for ranks to compare.
std::string words_of(const generate::GenerateOptions& options);

// Bytes that keys and values may take on a rank, once its weights are loaded: a share of the host's
// available memory, or the GPU's memory that is not taken.
int64_t memory_for_cache(const comm::World& world);

}  // namespace zinc::apps
