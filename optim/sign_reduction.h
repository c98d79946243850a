// optim/sign_reduction.h: an update rule whose gradients travel between ranks as signs.
//
// In the steps that the rule names, each rank sends
//   x = keep * last + share * gradient + error
// as one bit an element and a scale (kernels/signs.h). `gradient` is what the rank's own
// micro-batches gave, times the number of ranks; `last` is the sum of the step before; `error` is
// what the signs of the rank's last x left out. The mean of what the ranks sent, with an error of
// its own, goes back as signs too: it is the sum of this step, and what update() finds in the
// gradient's place. In all other steps gradients are summed as ever. After Tang et al., "1-bit
// Adam", ICML 2021, algorithm 1. How ranks do it: zero/group/sign_sums.h.
#pragma once

#include <cstdint>

#include "optim/hyper_parameters.h"

namespace zinc::optim {

class SignReduction {
 public:
  virtual ~SignReduction() = default;

  // Whether signs travel in the step of update `step`, from 1.
  virtual bool sends_signs(int64_t step) const = 0;
  struct Terms {
    double keep = 0.0;
    double share = 1.0;
    friend bool operator==(const Terms&, const Terms&) = default;
  };
  // Of elements with these hyper-parameters.
  virtual Terms terms(const HyperParameters& hyper) const = 0;
  // The state of the optimizer that holds `last`, by its place in Optimizer::state_names(). Only
  // for keep other than 0. After an update in which signs travelled it holds their sum.
  virtual int last() const = 0;
  // One scale for each parameter, or for the part of one that a rank sums; false: one for every
  // 1024 elements.
  virtual bool scales_parameters() const { return false; }
};

}  // namespace zinc::optim
