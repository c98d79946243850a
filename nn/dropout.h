// nn/dropout.h: zeroes elements at random while training.
#pragma once

#include "nn/module.h"

namespace zinc::nn {

// Srivastava et al. 2014, inverted: elements that are kept are divided by 1 - p. The mask depends
// on (seed, step, micro-batch, module path, call, element) alone. Does nothing after eval().
class Dropout : public Module {
 public:
  Dropout(Module& parent, std::string name, double probability);
  Tensor forward(const Tensor& x);
  double probability() const { return probability_; }

 private:
  double probability_;
  uint64_t site_;
};

}  // namespace zinc::nn
