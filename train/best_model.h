// train/best_model.h: finds the best evaluation of a run, and when to stop for lack of improvement.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::train {

struct BestModelOptions {
  // "loss" or "perplexity" of the first validation set. For a set with a name: "NAME/loss".
  std::string metric = "loss";
  std::optional<bool> greater_is_better;  // absent: false, as for both metrics
  // The number of evaluations in a row without an improvement after which the run ends; 0: never.
  // An improvement is better than the best before by more than `threshold`.
  int64_t patience = 0;
  double threshold = 0.0;
  // At the end the model gets the best weights again, unless the run was told to stop.
  bool load_at_end = false;
};

// The part that a checkpoint keeps.
struct BestSoFar {
  std::string metric;
  bool greater_is_better = false;
  int64_t samples = 0;          // samples of the set that decides; other numbers give other figures
  std::optional<double> value;  // absent: none was finite
  int64_t step = 0;             // step of the best figure
  int64_t without_improvement = 0;  // evaluations since the last improvement
};

class BestModel {
 public:
  // `sets`: names of the validation sets; one may be empty. Throws ConfigError, with the nearest
  // name, for a metric that does not exist.
  BestModel(BestModelOptions options, const std::vector<std::string>& sets);

  // Call before the first take(). `start`: the state of an earlier run. `samples`: of set(). False
  // if the earlier figure cannot be compared, because metric, direction or number of samples
  // differ: the best begins anew.
  bool go_on_from(const BestSoFar& start, int64_t samples);

  const BestModelOptions& options() const { return options_; }
  size_t set() const { return set_; }  // the set whose figure decides
  double value_of(double loss) const;  // the metric
  // Takes the loss of set() after `step`. True if it is the best so far. A loss that is not finite
  // never is.
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
