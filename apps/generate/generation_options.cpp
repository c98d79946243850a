#include "apps/generate/generation_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "apps/generate/generation_config.h"
#include "apps/help/help_text.h"
#include "apps/machine.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/philox.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "hub/model.h"
#include "hub/weight_folder.h"

namespace zinc::apps {

void add_sampling_options(CLI::App& verb, generate::GenerateOptions& options) {
  generate::SamplingOptions& sampling = options.sampling;
  verb.add_option("--context", options.context,
                  "The model sees the last so many tokens (default: all its positions)")
      ->check(CLI::PositiveNumber);
  verb.add_option(
      "--temperature", sampling.temperature,
      fmt::format("0: always the most likely token (default {:g})", sampling.temperature));
  verb.add_option("--top-k", sampling.top_k, "Only the k most likely tokens; 0: all (default)");
  verb.add_option("--top-p", sampling.top_p,
                  "Only the most likely tokens of this total probability (default 1)");
  verb.add_option("--min-p", sampling.min_p,
                  "Only tokens with this share of the most likely one's probability (default 0)");
  verb.add_option("--typical-p", sampling.typical_p,
                  "Only the most typical tokens of this total probability (default 1)");
  verb.add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Above 1: tokens of the text so far are less likely (default 1)");
  verb.add_option("--no-repeat-ngram-size", sampling.no_repeat_ngram_size,
                  "No row of so many tokens comes twice; 0: any may (default)");
  verb.add_option("--num-beams", options.beams.num_beams,
                  "Beam search over so many texts at once; 1: none (default)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  verb.add_option("--length-penalty", options.beams.length_penalty,
                  "Beam search: log-probabilities are divided by length to this power (default 1)");
  verb.add_option("--seed", options.seed, "Same seed, same text (default 0)");
  put_into(verb, kOfWriting,
           {"--context", "--temperature", "--top-k", "--top-p", "--min-p", "--typical-p",
            "--repetition-penalty", "--no-repeat-ngram-size", "--num-beams", "--length-penalty",
            "--seed"});
}

void add_generation_options(CLI::App& verb, GenerationArguments& arguments) {
  generate::GenerateOptions& options = arguments.options;
  arguments.verb = &verb;
  verb.add_option("--tokens,--max-new-tokens", options.max_tokens,
                  fmt::format("New tokens (default {})", options.max_tokens))
      ->check(CLI::Range(int64_t{0}, generate::kMostNewTokens));
  add_sampling_options(verb, options);
  verb.add_option("--early-stopping", arguments.early_stopping,
                  "Beam search ends with the first texts that end: true; where none is likely to "
                  "become better: false (default); where none can: never");
  verb.add_option("--stop-token,--eos-token-id", arguments.stop_tokens,
                  "A token that ends the text; may be given again (default: the tokenizer's, and "
                  "those of config.json and generation_config.json)")
      ->allow_extra_args(false);
  verb.add_option("--stop-strings", arguments.stop_strings,
                  "Text that ends the text and does not belong to it; may be given again")
      ->allow_extra_args(false);
  put_into(verb, kOfWriting, {"--tokens", "--early-stopping", "--stop-token", "--stop-strings"});
}

std::vector<int32_t> stop_tokens_of(const std::string& folder, const hub::ModelConfig& config,
                                    const text::Tokenizer* tokenizer) {
  std::vector<int32_t> tokens;
  const auto add = [&](int64_t token) {
    const bool is_one = token >= 0 && token < hub::vocabulary_size(config);
    if (is_one && std::ranges::find(tokens, token) == tokens.end()) {
      tokens.push_back(static_cast<int32_t>(token));
    }
  };
  const std::optional<int32_t> end = tokenizer != nullptr ? tokenizer->end_of_text() : std::nullopt;
  if (end) add(*end);
  for (const int64_t token : hub::eos_tokens(config)) add(token);
  const std::string path = folder + "/generation_config.json";
  if (!files::file_exists(path)) return tokens;
  const files::json::Value file = files::json::parse_file(path);
  const files::json::Value* eos = file.find("eos_token_id");
  if (eos == nullptr || eos->is_null()) return tokens;
  if (!eos->is_array()) {
    add(eos->as_int64());
    return tokens;
  }
  for (const files::json::Value& token : eos->as_array()) add(token.as_int64());
  return tokens;
}

int64_t positions_of_writer(const std::string& folder, const hub::ModelConfig& config) {
  const std::unique_ptr<nn::Model> model = hub::make_model(config);
  const bool writes = nn::find_interface<nn::EncoderDecoderLm>(*model) != nullptr ||
                      nn::find_interface<nn::CausalLm>(*model) != nullptr;
  if (writes) return model->max_sequence();
  throw ConfigError(fmt::format(
      "'{}' is a {} model: an encoder, which reads text and writes none; text comes from a decoder "
      "(as GPT-2 or Llama) or an encoder-decoder (as T5)",
      folder, hub::model_type(config)));
}

uint64_t fingerprint_of_weights(const std::string& model, const std::string& adapter) {
  const uint64_t of_model = hub::WeightFolder::open(model).fingerprint();
  if (adapter.empty()) return of_model;
  return combine_bits(of_model, hub::WeightFolder::open(adapter).fingerprint());
}

std::string words_of(const generate::GenerateOptions& options) {
  const generate::SamplingOptions& sampling = options.sampling;
  std::string text = fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} {} {} stop", options.max_tokens, options.context,
      options.seed, options.num_return_sequences, options.beams.num_beams,
      options.beams.length_penalty, static_cast<int>(options.beams.early_stopping),
      sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, sampling.typical_p,
      sampling.repetition_penalty, sampling.no_repeat_ngram_size);
  for (const int32_t token : options.stop_tokens) text += fmt::format(" {}", token);
  return text;
}

int64_t memory_for_cache(const comm::World& world) {
  const int64_t ranks = std::max(world.info().local_size, 1);
  const Device device = world.context().device();
  if (!device.is_cuda()) return inspect_machine().available_bytes / ranks;
  const std::vector<CudaDeviceInfo> devices = cuda_devices();
  const int64_t on_one = (ranks - 1) / std::ssize(devices) + 1;
  const int64_t all = devices.at(static_cast<size_t>(device.index)).memory_bytes / on_one;
  // No limit is 0.
  return std::max<int64_t>(1, all - world.context().allocator().report().at(Tier::device).live);
}

SettledOptions settled_options(const GenerationArguments& arguments, const std::string& folder,
                               const hub::ModelConfig& config, int64_t positions,
                               const text::Tokenizer* tokenizer) {
  using Early = generate::BeamOptions::EarlyStopping;
  SettledOptions settled{.options = arguments.options, .note = {}};
  generate::GenerateOptions& options = settled.options;
  if (positions > 0 && options.context > positions) {
    throw ConfigError(fmt::format("--context {} is longer than the model's {} positions",
                                  options.context, positions));
  }
  if (arguments.early_stopping == "true") {
    options.beams.early_stopping = Early::yes;
  } else if (arguments.early_stopping == "never") {
    options.beams.early_stopping = Early::never;
  } else if (arguments.early_stopping != "false") {
    throw ConfigError(fmt::format("--early-stopping is true, false or never, not '{}'",
                                  arguments.early_stopping));
  }
  settled.note = take_generation_config(
      folder,
      [&](std::string_view option) { return arguments.verb->count(std::string(option)) > 0; },
      options);
  options.stop_tokens = arguments.stop_tokens;
  text::require_in_vocabulary("--stop-token", options.stop_tokens, hub::vocabulary_size(config));
  if (options.stop_tokens.empty()) options.stop_tokens = stop_tokens_of(folder, config, tokenizer);
  generate::validate(options);
  return settled;
}

}  // namespace zinc::apps
