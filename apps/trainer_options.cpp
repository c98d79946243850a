#include "apps/trainer_options.h"

#include <fmt/format.h>

#include <cstdint>

#include "core/error.h"
#include "train/best_model.h"

namespace zinc::apps {
namespace {

CLI::Range whole_numbers(int64_t least) { return {least, int64_t{1} << 53}; }

constexpr const char* kDelay = "--eval-delay";
constexpr const char* kMetric = "--metric-for-best-model";
constexpr const char* kThreshold = "--early-stopping-threshold";

// The first that was given of the options that need evaluations on the way; empty: none.
std::string evaluating_option(const train::TrainingOptions& training,
                              const TrainerArguments& arguments) {
  const train::BestModelOptions& best = training.best;
  if (best.load_at_end) return "--load-best-model-at-end";
  if (arguments.best_by.contains(kMetric)) return kMetric;
  if (best.greater_is_better) return "--greater-is-better";
  if (best.patience > 0) return "--early-stopping-patience";
  if (training.eval_delay > 0.0) return kDelay;
  return "";
}

}  // namespace

std::string when_evaluated(const train::TrainingOptions& training) {
  std::string words = training.eval_on_start ? "at the start, " : "";
  const auto from = [delay = training.eval_delay](const char* unit) {
    return delay > 0.0 ? fmt::format(" from {} {:g} on", unit, delay) : std::string();
  };
  if (training.eval_every > 0) {
    return words + fmt::format("every {} steps{} and ", training.eval_every, from("step"));
  }
  if (training.eval_each_epoch) return words + "after each epoch" + from("epoch") + " and ";
  return training.eval_on_start ? "at the start and " : "";
}

void add_trainer_options(CLI::App& verb, train::TrainingOptions& training,
                         TrainerArguments& arguments) {
  train::BestModelOptions& best = training.best;
  const auto noted = [&arguments](const char* name) {
    return [&arguments, name](const std::string&) { arguments.best_by.insert(name); };
  };
  verb.add_option("--steps,--max-steps", training.steps, "Optimizer steps; or --epochs")
      ->check(whole_numbers(1));
  verb.add_option("--epochs,--num-train-epochs", arguments.epochs,
                  "Passes over the data, perhaps a fraction, instead of --steps")
      ->check([](const std::string& text) {
        double value = 0.0;
        const bool fits = CLI::detail::lexical_cast(text, value) && value > 0.0 && value < 1e9;
        return fits ? std::string() : "must be positive, not " + text;
      });
  verb.add_option("--eval-every,--eval-steps", training.eval_every,
                  "Steps between evaluations (default 0: at the end only)")
      ->check(whole_numbers(0));
  verb.add_option("--eval-strategy", arguments.eval_strategy,
                  "steps: every --eval-every steps; epoch: after each epoch; no: at the end only, "
                  "as always")
      ->check(CLI::IsMember({"no", "steps", "epoch"}))
      ->each([&training](const std::string& word) { training.eval_each_epoch = word == "epoch"; });
  verb.add_flag("--eval-on-start", training.eval_on_start,
                "Evaluate before the first step too; that model is never the best");
  verb.add_option(kDelay, training.eval_delay,
                  "Steps before the first of --eval-every, or epochs with --eval-strategy epoch "
                  "(default 0)")
      ->check(CLI::NonNegativeNumber);
  verb.add_option(kMetric, best.metric,
                  "loss (default) or perplexity; of a validation set with a name NAME/loss, "
                  "NAME/perplexity")
      ->each(noted(kMetric));
  verb.add_option("--greater-is-better", best.greater_is_better,
                  "true or false (default: false, of a loss)");
  verb.add_flag("--load-best-model-at-end", best.load_at_end,
                "final/ and the sample are of the best model instead of the last");
  verb.add_option("--early-stopping-patience", best.patience,
                  "End the run after so many evaluations in a row without an improvement")
      ->check(whole_numbers(1));
  verb.add_option(kThreshold, best.threshold,
                  "How much better than the best an improvement is (default 0)")
      ->check(CLI::NonNegativeNumber)
      ->each(noted(kThreshold));
}

void require_consistent(const train::TrainingOptions& training, const TrainerArguments& arguments,
                        const std::vector<std::string>& sets) {
  if (training.steps > 0 && arguments.epochs > 0.0) {
    throw ConfigError(
        "--steps and --epochs both say how long the run is: give one, and the other follows");
  }
  if (training.steps == 0 && arguments.epochs == 0.0) {
    throw ConfigError("--steps or --epochs must say how long the run is");
  }
  const std::string& strategy = arguments.eval_strategy;
  if (strategy == "steps" && training.eval_every == 0) {
    throw ConfigError("--eval-strategy steps needs --eval-every");
  }
  if ((strategy == "epoch" || strategy == "no") && training.eval_every > 0) {
    throw ConfigError(
        fmt::format("--eval-strategy {} contradicts --eval-every {}: give one of them", strategy,
                    training.eval_every));
  }
  if (arguments.best_by.contains(kThreshold) && training.best.patience == 0) {
    throw ConfigError("--early-stopping-threshold needs --early-stopping-patience");
  }
  const std::string option = evaluating_option(training, arguments);
  if (!option.empty() && training.eval_every == 0 && !training.eval_each_epoch) {
    throw ConfigError(option +
                      " needs evaluations on the way: give --eval-every, or --eval-strategy epoch");
  }
  try {
    train::BestModel(training.best, sets);
  } catch (const ConfigError& error) {
    throw ConfigError(str(kMetric, ": ", error.what()));
  }
}

}  // namespace zinc::apps
