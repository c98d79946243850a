#include "train/best_model.h"

#include <cmath>
#include <utility>

#include "core/edit_distance.h"
#include "core/error.h"

namespace zinc::train {
namespace {

constexpr std::string_view kEvalPrefix = "eval_";  // transformers' prefix of names of metrics

}  // namespace

BestModel::BestModel(BestModelOptions options, const std::vector<std::string>& sets)
    : options_(std::move(options)) {
  require(options_.patience >= 0 && options_.threshold >= 0.0,
          "best model: patience and threshold must not be negative");
  if (options_.metric.starts_with(kEvalPrefix)) {
    options_.metric.erase(0, kEvalPrefix.size());
  }
  std::vector<std::string> known;
  bool found = false;
  const auto offer = [&](std::string name, size_t set, bool is_perplexity) {
    if (!found && name == options_.metric) {
      found = true;
      set_ = set;
      is_perplexity_ = is_perplexity;
    }
    known.push_back(std::move(name));
  };
  for (const bool perplexity : {false, true}) {
    const std::string figure = perplexity ? "perplexity" : "loss";
    offer(figure, 0, perplexity);
    for (size_t i = 0; i < sets.size(); ++i) {
      if (!sets[i].empty()) offer(str(sets[i], '/', figure), i, perplexity);
    }
  }
  if (!found) {
    const std::string nearest = nearest_name(options_.metric, known);
    std::string list;
    for (const std::string& name : known) list += str(list.empty() ? "" : ", ", name);
    throw ConfigError(str("there is no metric '", options_.metric, "' to find the best model by",
                          nearest.empty() ? "" : str("; did you mean '", nearest, "'?"),
                          " (there are ", list, ")"));
  }
  so_far_.metric = options_.metric;
  so_far_.greater_is_better = options_.greater_is_better.value_or(false);
}

bool BestModel::go_on_from(const BestSoFar& start, int64_t samples) {
  so_far_.samples = samples;
  const bool is_same = start.metric == so_far_.metric && start.samples == samples &&
                       start.greater_is_better == so_far_.greater_is_better;
  if (is_same) so_far_ = start;
  return is_same || !start.value;
}

double BestModel::value_of(double loss) const { return is_perplexity_ ? std::exp(loss) : loss; }

bool BestModel::take(int64_t step, double loss) {
  const double value = value_of(loss);
  const bool greater = so_far_.greater_is_better;
  const bool better =
      std::isfinite(value) &&
      (!so_far_.value || (greater ? value > *so_far_.value : value < *so_far_.value));
  const bool improves =
      better && (!so_far_.value || std::abs(value - *so_far_.value) > options_.threshold);
  so_far_.without_improvement = improves ? 0 : so_far_.without_improvement + 1;
  if (better) {
    so_far_.value = value;
    so_far_.step = step;
  }
  return better;
}

}  // namespace zinc::train
