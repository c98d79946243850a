// zinc evaluate: figures of predictions beside their references, and of a model on data.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/evaluate/evaluate_model.h"
#include "apps/help/help_text.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "files/json/writer.h"
#include "text/scores/score_pairs.h"

namespace zinc::apps {
namespace {

struct EvaluateArguments {
  std::string pairs, words = "plain";
  bool chinese = false;
  ModelEvaluation model;
};

// "rouge" stands for its four figures.
std::vector<std::string> all_named(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    if (name != "rouge") {
      all.push_back(name);
    } else {
      all.insert(all.end(), {"rouge1", "rouge2", "rougeL", "rougeLsum"});
    }
  }
  return all;
}

int evaluate_pairs(const EvaluateArguments& options) {
  std::vector<std::string> metrics = options.model.metrics;
  if (metrics.empty()) metrics = {"rouge1", "rouge2", "rougeL", "bleu"};
  const std::vector<text::TextPair> pairs = text::read_pairs(options.pairs);
  files::json::Writer json;
  json.begin_object();
  json.member("pairs", static_cast<int64_t>(pairs.size()));
  if (!options.model.json) fmt::print("{} pairs\n", pairs.size());
  for (const std::string& metric : metrics) {
    const double value = text::score_of(metric, pairs, options.model.scores);
    json.member(metric, value);
    if (!options.model.json) fmt::print("{:12} {:.6f}\n", metric, value);
  }
  json.end_object();
  if (options.model.json) fmt::print("{}\n", json.take());
  return kDone;
}

int evaluate(EvaluateArguments& options) {
  options.model.metrics = all_named(options.model.metrics);
  text::ScoreOptions& scores = options.model.scores;
  if (options.words == "stemmed") scores.rouge_words = text::RougeWords::stemmed;
  if (options.chinese) {
    scores.rouge_words = text::RougeWords::characters;
    scores.bleu_words = text::BleuWords::chinese;
  }
  const bool of_model = !options.model.model.empty() || !options.model.data.data.empty();
  if (of_model == !options.pairs.empty()) {
    throw ConfigError("give --model with --data to evaluate a model, or --pairs to score texts");
  }
  if (!of_model) return evaluate_pairs(options);
  if (options.model.model.empty()) throw ConfigError("--data needs --model: a folder of weights");
  if (options.model.data.data.empty()) throw ConfigError("--model needs --data: files of examples");
  if (options.model.metrics.empty()) options.model.metrics = {"perplexity"};
  return evaluate_model(options.model);
}

}  // namespace

void add_evaluate_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<EvaluateArguments>();
  CLI::App* verb = app.add_subcommand("evaluate", "Figures of a model on data, or of predictions");
  verb->add_option("--metric", options->model.metrics,
                   "As in rouge1,bleu. Of a model: perplexity (default); choice, for questions "
                   "with choices; of the answers that it writes, and of --pairs: rouge1, rouge2, "
                   "rougeL, rougeLsum (rouge: all four), bleu, exact_match, accuracy, f1, "
                   "f1_micro, f1_macro")
      ->delimiter(',');
  verb->add_option(
      "--pairs", options->pairs,
      "JSON lines: {\"prediction\": ..., \"reference\": ...}, or \"references\": [...]");
  add_model_evaluation_options(*verb, options->model);
  verb->add_option("--words", options->words, "Of ROUGE: plain (default) or stemmed")
      ->check(CLI::IsMember({"plain", "stemmed"}));
  verb->add_flag("--chinese", options->chinese,
                 "ROUGE by characters, BLEU by sacrebleu's words of Chinese");
  verb->add_option("--positive", options->model.scores.positive, "The label of f1 (default 1)");
  verb->add_flag("--json", options->model.json, "Figures for programs");
  begin_help(*verb, {"--model", "--data", "--metric", "--pairs", "--limit", "--json"},
             "zinc evaluate --model run/final --data held-out.txt", "docs/evaluation.md");
  put_into(*verb, kOfModel, {"--tokenizer"});
  put_into(*verb, kOfData,
           {"--fields", "--pattern", "--chat", "--mask", "--classes", "--mlm-probability",
            "--no-end", "--skip-bad", "--cache"});
  put_into(*verb, kOfLength, {"--seq", "--batch"});
  put_into(*verb, kOfWriting, {"--tokens", "--stop-token", "--stop-text"});
  put_into(*verb, kOfMemory, {"--dtype"});
  put_into(*verb, kOfRanks, {"--device", "--threads", "--sharded"});
  put_into(*verb, kOfFigures, {"--words", "--chinese", "--positive"});
  put_into(*verb, kOfFiles, {"--save-predictions"});
  verb->callback([options, &action] { action = [options] { return evaluate(*options); }; });
}

}  // namespace zinc::apps
