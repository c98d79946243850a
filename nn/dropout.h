// nn/dropout.h: zeroes elements at random while training.
#pragma once

#include "nn/module.h"

namespace zinc::nn {

// Srivastava et al. 2014, inverted: elements that are kept are divided by 1 - p. The mask depends
// on (seed, step, micro-batch, module path, call, element) alone. Does nothing after eval().
class Dropout : public Module {
 public:
  // of_slice: works inside of sliced layers, on all tokens; else ranks that share tokens drop
  // others each.
  Dropout(Module& parent, std::string name, double probability, bool of_slice = false);
  Tensor forward(const Tensor& x);
  // Of x inside of sliced layers, this rank's part of `whole` features: each slice drops others.
  Tensor of_own_features(const Tensor& x, int64_t whole);
  double probability() const { return probability_; }
  // Whether forward() changes anything now.
  bool drops() const { return is_training() && probability_ > 0.0; }

 private:
  double probability_;
  bool of_slice_;
  uint64_t site_;
};

}  // namespace zinc::nn
