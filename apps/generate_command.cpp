// zinc generate: text from a folder of weights.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "apps/command.h"
#include "autograd/mode.h"
#include "core/context.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "train/adapter.h"
#include "train/cached_logits.h"
#include "train/generate.h"
#include "train/model.h"
#include "train/text/tokenizer_folder.h"

namespace zinc::apps {
namespace {

struct GenerateArguments {
  std::string model;
  std::string adapter;
  std::string tokenizer;
  std::string prompt = "\n";
  train::GenerateOptions generate{};
  int stop_token = -1;
  std::string dtype = "f32";
  std::string device = "cpu";
  int num_threads = 0;
};

// --tokenizer, the one in the model's folder, or bytes.
std::unique_ptr<train::Tokenizer> tokenizer_of(const GenerateArguments& options,
                                               int64_t vocabulary) {
  if (!options.tokenizer.empty()) return train::load_tokenizer(options.tokenizer);
  if (train::has_tokenizer(options.model)) return train::load_tokenizer(options.model);
  auto bytes = std::make_unique<train::ByteTokenizer>();
  if (vocabulary != bytes->vocabulary_size()) {
    throw DataError(concat("'", options.model, "' has a vocabulary of ", vocabulary,
                           " and no tokenizer: give one by --tokenizer (a model of bytes has a "
                           "vocabulary of 256)"));
  }
  return bytes;
}

int generate(const GenerateArguments& options) {
  const std::optional<DType> dtype = parse_dtype(options.dtype);
  if (!dtype || !is_float(*dtype)) {
    throw ConfigError(concat("--dtype must be f32, bf16 or f16, not '", options.dtype, "'"));
  }
  const Device device = parse_device(options.device);
  require_device(device, *dtype);
  Context context({.device = device,
                   .num_threads = options.num_threads,
                   .execution = ContextOptions::Execution::inline_all});
  const ContextScope scope(context);
  const train::ModelConfigFile config = train::read_model_config(options.model);
  const std::unique_ptr<nn::Model> model = train::make_model(config.config);
  const std::unique_ptr<train::Tokenizer> tokenizer = tokenizer_of(options, model->vocab_size());
  const std::vector<int32_t> prompt = tokenizer->encode_with_specials(options.prompt);
  if (prompt.empty()) throw ConfigError("--prompt must not be empty");
  train::require_in_vocabulary("the prompt", prompt, model->vocab_size());
  const train::FolderWeights base(options.model, *model, config.config);
  if (!options.adapter.empty()) {
    train::apply_tuning(*model, train::tuning_of_adapter(options.adapter));
  }
  model->set_dtype(*dtype);
  model->load(
      train::AdaptedWeights(*model, &base, train::name_map(config.config), options.adapter));
  model->eval();

  train::GenerateOptions settings = options.generate;
  if (settings.context > model->max_sequence()) {
    throw ConfigError(concat("--context ", settings.context, " is longer than the model's ",
                             model->max_sequence(), " positions"));
  }
  if (settings.context == 0) settings.context = model->max_sequence();
  settings.stop_token = tokenizer->end_of_text();
  if (options.stop_token >= 0) settings.stop_token = options.stop_token;
  const autograd::NoGrad no_grad;
  train::StreamingDecoder decoder(*tokenizer, true);
  const auto show = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  show(options.prompt);
  train::CachedLogits cached(*model);
  train::generate([&](const Tensor& ids) { return cached(ids); }, prompt, settings,
                  [&](int32_t token) { show(decoder.push(token)); });
  show(decoder.finish() + "\n");
  return kDone;
}

}  // namespace

void add_generate_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<GenerateArguments>();
  CLI::App* verb = app.add_subcommand("generate", "Write text with trained weights");
  verb->add_option("--model", options->model,
                   "Folder with config.json and weights: safetensors or pytorch_model.bin")
      ->required();
  verb->add_option("--adapter", options->adapter, "Folder of an adapter of that model");
  verb->add_option("--tokenizer", options->tokenizer,
                   "Folder or file of the tokenizer (default: that of the model's folder)");
  verb->add_option("--prompt", options->prompt, "Text to go on from (default: a line break)");
  verb->add_option("--tokens", options->generate.max_tokens, "New tokens (default 256)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--context", options->generate.context,
                   "The model sees the last so many tokens (default: all its positions)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--temperature", options->generate.sampling.temperature,
                   "0: always the most likely token (default 1)");
  verb->add_option("--top-k", options->generate.sampling.top_k,
                   "Only the k most likely tokens; 0: all (default)");
  verb->add_option("--top-p", options->generate.sampling.top_p,
                   "Only the most likely tokens of this total probability (default 1)");
  verb->add_option("--seed", options->generate.seed, "Same seed, same text (default 0)");
  verb->add_option("--stop-token", options->stop_token,
                   "A token that ends the text (default: the tokenizer's)");
  verb->add_option("--dtype", options->dtype, "f32 (default), bf16 or f16");
  verb->add_option("--device", options->device, "cpu (default), cuda or cuda:<i>");
  verb->add_option("--threads", options->num_threads, "0: all cores (default)");
  verb->callback([options, &action] { action = [options] { return generate(*options); }; });
}

}  // namespace zinc::apps
