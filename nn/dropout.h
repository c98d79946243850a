// nn/dropout.h: zeroes elements at random while training.
#pragma once

#include "nn/module.h"

namespace zinc::nn {

// Srivastava et al. 2014, inverted: elements that are kept are divided by 1 - p. The mask depends
// on (seed, step, micro-batch, module path, call, element) alone. Does nothing after eval().
class Dropout : public Module {
 public:
  // of_slice: the layer works inside of sliced layers, on all tokens. Otherwise, ranks that share
  // tokens each draw their own masks.
  Dropout(Module& parent, std::string name, double probability, bool of_slice = false);
  Tensor forward(const Tensor& x);
  // For x inside of sliced layers, this rank's part of `whole` features: each slice draws its own
  // mask.
  Tensor of_own_features(const Tensor& x, int64_t whole);
  double probability() const { return probability_; }
  // Whether forward() would drop elements now.
  bool drops() const { return is_training() && probability_ > 0.0; }

 private:
  double probability_;
  bool of_slice_;
  uint64_t site_;
};

}  // namespace zinc::nn
