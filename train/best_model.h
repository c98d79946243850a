// train/best_model.h: which evaluation of a run was the best, and when it is no use to go on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::train {

struct BestModelOptions {
  // "loss" or "perplexity" of the first validation set; of one with a name, "NAME/loss" too.
  std::string metric = "loss";
  std::optional<bool> greater_is_better;  // absent: as the metric has it, which is false
  // Evaluations in a row without an improvement after which the run ends; 0: it does not. An
  // improvement is better than the best before by more than `threshold`.
  int64_t patience = 0;
  double threshold = 0.0;
  // At the end, but for a run that was told to stop, the model gets the best weights again.
  bool load_at_end = false;
};

// What a checkpoint keeps of it.
struct BestSoFar {
  std::string metric;
  bool greater_is_better = false;
  int64_t samples = 0;              // of the set that decides; others have other figures
  std::optional<double> value;      // absent: none was finite
  int64_t step = 0;                 // of the best
  int64_t without_improvement = 0;  // evaluations since the last improvement
};

class BestModel {
 public:
  // `sets`: names of the validation sets, one of them perhaps empty. ConfigError with the nearest
  // name for a metric that there is not.
  BestModel(BestModelOptions options, const std::vector<std::string>& sets);

  // Before the first take(): set() has so many samples, and a run before had come to `start`. False
  // where its figure cannot be compared, being of another metric, direction or number of samples:
  // the best begins anew.
  bool go_on_from(const BestSoFar& start, int64_t samples);

  const BestModelOptions& options() const { return options_; }
  size_t set() const { return set_; }  // whose figure decides
  double value_of(double loss) const;  // the metric
  // Takes the loss of set() after `step`. True where it is the best so far; one that is not finite
  // is not.
  bool take(int64_t step, double loss);
  bool is_time_to_stop() const {
    return options_.patience > 0 && so_far_.without_improvement >= options_.patience;
  }
  const BestSoFar& so_far() const { return so_far_; }

 private:
  BestModelOptions options_;
  size_t set_ = 0;
  bool is_perplexity_ = false;
  BestSoFar so_far_;
};

}  // namespace zinc::train
