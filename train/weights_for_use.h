// train/weights_for_use.h: the weights of a checkpoint with which its model is used.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/view.h"
#include "optim/optimizer.h"
#include "train/checkpoint/checkpoint.h"

namespace zinc::train {

// The weights themselves; or where the update rule trains with others (zero::TrainingState::apart),
// what the rule makes of weights and states, as the run does for its evaluations, with the
// hyper-parameters of the run's configuration.
class WeightsForUse {
 public:
  // `checkpoint` must outlive this. Throws ConfigError, with the cure, for a rule that only the
  // run's own program knows.
  explicit WeightsForUse(const Checkpoint& checkpoint);
  const Checkpoint& checkpoint() const { return checkpoint_; }
  // Elements [begin, begin + out.numel()) of a parameter, flat row-major, converted to out's dtype.
  // out: [n], contiguous host memory. Throws as Checkpoint::read().
  void read(std::string_view name, int64_t begin, View out) const;

 private:
  const Checkpoint& checkpoint_;
  std::unique_ptr<optim::Optimizer> optimizer_;  // null: the weights themselves
  optim::HyperParameters hyper_;
};

}  // namespace zinc::train
