// zinc evaluate: figures of predictions beside their references.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/exit_codes.h"
#include "train/json/writer.h"
#include "train/scores/score_pairs.h"

namespace zinc::apps {
namespace {

struct EvaluateArguments {
  std::string pairs, words = "plain", positive = "1";
  std::vector<std::string> metrics{"rouge1", "rouge2", "rougeL", "bleu"};
  bool chinese = false, json = false;
};

int evaluate(const EvaluateArguments& options) {
  train::ScoreOptions scores{.positive = options.positive};
  if (options.words == "stemmed") scores.rouge_words = train::RougeWords::stemmed;
  if (options.chinese) {
    scores.rouge_words = train::RougeWords::characters;
    scores.bleu_words = train::BleuWords::chinese;
  }
  const std::vector<train::TextPair> pairs = train::read_pairs(options.pairs);
  train::json::Writer json;
  json.begin_object();
  json.member("pairs", static_cast<int64_t>(pairs.size()));
  if (!options.json) fmt::print("{} pairs\n", pairs.size());
  for (const std::string& metric : options.metrics) {
    const double value = train::score_of(metric, pairs, scores);
    json.member(metric, value);
    if (!options.json) fmt::print("{:12} {:.6f}\n", metric, value);
  }
  json.end_object();
  if (options.json) fmt::print("{}\n", json.take());
  return kDone;
}

}  // namespace

void add_evaluate_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<EvaluateArguments>();
  CLI::App* verb = app.add_subcommand("evaluate", "Figures of predictions beside their references");
  verb->add_option(
          "--pairs", options->pairs,
          "JSON lines: {\"prediction\": ..., \"reference\": ...}, or \"references\": [...]")
      ->required();
  verb->add_option("--metric", options->metrics,
                   "As in rouge1,bleu (default rouge1,rouge2,rougeL,bleu); also rougeLsum, "
                   "exact_match, accuracy, f1, f1_micro, f1_macro")
      ->delimiter(',');
  verb->add_option("--words", options->words, "Of ROUGE: plain (default) or stemmed")
      ->check(CLI::IsMember({"plain", "stemmed"}));
  verb->add_flag("--chinese", options->chinese,
                 "ROUGE by characters, BLEU by sacrebleu's words of Chinese");
  verb->add_option("--positive", options->positive, "The label of f1 (default 1)");
  verb->add_flag("--json", options->json, "Figures for programs");
  verb->callback([options, &action] { action = [options] { return evaluate(*options); }; });
}

}  // namespace zinc::apps
