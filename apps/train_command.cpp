// zinc train: a model, a configuration and text become weights.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/console.h"
#include "apps/exit_codes.h"
#include "apps/stop_signal.h"
#include "comm/world.h"
#include "core/error.h"
#include "train/config/config.h"
#include "train/data/token_windows.h"
#include "train/files/atomic_file.h"
#include "train/generate.h"
#include "train/metrics/file_sinks.h"
#include "train/metrics/run_folder.h"
#include "train/metrics/tensorboard_sink.h"
#include "train/model.h"
#include "train/text/tokenizer.h"
#include "train/trainer.h"
#include "zero/gather_values.h"

namespace zinc::apps {
namespace {

constexpr double kValidationFraction = 0.05;  // of the data, from its end
constexpr int64_t kEvaluationTokens = 131'072;  // at most
constexpr int64_t kSampleTokens = 400;

struct Options {
  std::string config;
  std::string model;
  std::vector<std::string> data;
  std::vector<std::string> validation;
  std::string out;
  std::string init;
  std::string device = "cpu";
  std::string sample_prompt;
  int64_t steps = 0;
  int64_t seq = 0;
  int64_t eval_every = 0;
  int64_t save_every = 0;
  bool force = false;
  train::Overrides overrides;
};

struct Data {
  std::unique_ptr<train::TokenWindows> train;
  std::unique_ptr<train::TokenWindows> validation;
  bool is_text = false;
};

// Text needs a vocabulary of bytes: the model's own is replaced, and the caller says so.
bool fit_vocabulary(train::ModelConfig& model, const train::TokenSequence& tokens) {
  if (!tokens.is_text() || train::vocabulary_size(model) == tokens.vocabulary_size()) return false;
  train::set_vocabulary_size(model, tokens.vocabulary_size());
  return true;
}

Data open_data(const Options& options, const train::TokenSequence& tokens, int64_t seq,
               int64_t vocabulary) {
  train::TokenSequence train_part = tokens;
  train::TokenSequence validation_part;
  if (options.validation.empty()) {
    std::tie(train_part, validation_part) = tokens.split_tail(kValidationFraction);
  } else {
    validation_part = train::TokenSequence::open(options.validation);
  }
  Data data;
  data.is_text = tokens.is_text();
  data.train = std::make_unique<train::TokenWindows>(
      train_part, train::TokenWindowsOptions{.seq_len = seq, .vocabulary_size = vocabulary});
  data.validation = std::make_unique<train::TokenWindows>(
      validation_part, train::TokenWindowsOptions{
                           .seq_len = seq, .vocabulary_size = vocabulary, .keep_short = true});
  return data;
}

std::vector<std::unique_ptr<train::MetricsSink>> open_sinks(const train::RunFolder& folder,
                                                            const train::Config& config) {
  std::vector<std::unique_ptr<train::MetricsSink>> sinks;
  const auto mode = train::AppendFile::Mode::create;
  sinks.push_back(std::make_unique<train::JsonLinesSink>(folder.file("metrics.jsonl"), mode));
  sinks.push_back(std::make_unique<train::CsvSink>(folder.file("metrics.csv"), mode));
  sinks.push_back(std::make_unique<train::TensorBoardSink>(folder.path(), wall_time()));
  for (auto& sink : train::monitor_sinks(config.monitor)) sinks.push_back(std::move(sink));
  return sinks;
}

int train_on(comm::World& world, const Options& options) {
  return kDone;
}

}  // namespace

}  // namespace zinc::apps
