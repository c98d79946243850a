#include "apps/trainer_options.h"

#include <fmt/format.h>

#include "core/error.h"

namespace zinc::apps {
namespace {

CLI::Range whole_numbers(int64_t least) { return {least, int64_t{1} << 53}; }

// The first of the options about the best model that was given; empty: none.
std::string best_model_option(const TrainerArguments& arguments) {
  if (arguments.load_best_at_end) return "--load-best-model-at-end";
  if (!arguments.metric.empty()) return "--metric-for-best-model";
  if (arguments.greater_is_better) return "--greater-is-better";
  if (arguments.patience) return "--early-stopping-patience";
  return "";
}

}  // namespace

std::string TrainerArguments::when_evaluated() const {
  std::string words = eval_on_start ? "at the start, " : "";
  if (eval_every > 0) return words + fmt::format("every {} steps and ", eval_every);
  if (evaluates_each_epoch()) return words + "after each epoch and ";
  return eval_on_start ? "at the start and " : "";
}

void add_trainer_options(CLI::App& verb, TrainerArguments& arguments) {
  verb.add_option("--steps,--max-steps", arguments.steps, "Optimizer steps; or --epochs")
      ->check(whole_numbers(1));
  verb.add_option("--epochs,--num-train-epochs", arguments.epochs,
                  "Passes over the data, perhaps a fraction, instead of --steps")
      ->check([](const std::string& text) {
        double value = 0.0;
        const bool fits = CLI::detail::lexical_cast(text, value) && value > 0.0 && value < 1e9;
        return fits ? std::string() : "must be positive, not " + text;
      });
  verb.add_option("--eval-every,--eval-steps", arguments.eval_every,
                  "Steps between evaluations (default 0: at the end only)")
      ->check(whole_numbers(0));
  verb.add_option("--eval-strategy", arguments.eval_strategy,
                  "steps: every --eval-every steps; epoch: after each epoch; no: at the end only, "
                  "as always")
      ->check(CLI::IsMember({"no", "steps", "epoch"}));
  verb.add_flag("--eval-on-start", arguments.eval_on_start,
                "Evaluate before the first step too; that model is never the best");
  verb.add_option("--metric-for-best-model", arguments.metric,
                  "loss (default) or perplexity; of a validation set with a name NAME/loss, "
                  "NAME/perplexity");
  verb.add_option("--greater-is-better", arguments.greater_is_better,
                  "true or false (default: false, of a loss)");
  verb.add_flag("--load-best-model-at-end", arguments.load_best_at_end,
                "final/ and the sample are of the best model instead of the last");
  verb.add_option("--early-stopping-patience", arguments.patience,
                  "End the run after so many evaluations in a row without an improvement")
      ->check(whole_numbers(1));
  verb.add_option("--early-stopping-threshold", arguments.threshold,
                  "How much better than the best an improvement is (default 0)")
      ->check(CLI::NonNegativeNumber);
}

void require_consistent(const TrainerArguments& arguments) {
  if (arguments.steps > 0 && arguments.epochs > 0.0) {
    throw ConfigError(
        "--steps and --epochs both say how long the run is: give one, and the other follows");
  }
  if (arguments.steps == 0 && arguments.epochs == 0.0) {
    throw ConfigError("--steps or --epochs must say how long the run is");
  }
  const std::string& strategy = arguments.eval_strategy;
  if (strategy == "steps" && arguments.eval_every == 0) {
    throw ConfigError("--eval-strategy steps needs --eval-every");
  }
  if ((strategy == "epoch" || strategy == "no") && arguments.eval_every > 0) {
    throw ConfigError(
        fmt::format("--eval-strategy {} contradicts --eval-every {}: give one of them", strategy,
                    arguments.eval_every));
  }
  if (arguments.threshold && !arguments.patience) {
    throw ConfigError("--early-stopping-threshold needs --early-stopping-patience");
  }
  const std::string option = best_model_option(arguments);
  if (!option.empty() && arguments.eval_every == 0 && !arguments.evaluates_each_epoch()) {
    throw ConfigError(option +
                      " needs evaluations on the way: give --eval-every, or --eval-strategy epoch");
  }
}

train::BestModelOptions best_model_of(const TrainerArguments& arguments,
                                      const std::vector<std::string>& sets) {
  train::BestModelOptions options{.greater_is_better = arguments.greater_is_better,
                                  .patience = arguments.patience.value_or(0),
                                  .threshold = arguments.threshold.value_or(0.0),
                                  .load_at_end = arguments.load_best_at_end};
  if (!arguments.metric.empty()) options.metric = arguments.metric;
  try {
    train::BestModel(options, sets);
  } catch (const ConfigError& error) {
    throw ConfigError(str("--metric-for-best-model: ", error.what()));
  }
  return options;
}

}  // namespace zinc::apps
