// autograd/deferred_gradients.h: gradients of weights that a backward pass leaves for later.
//
// A backward pass that is given one of these makes the gradients of all activations as usual, and
// the gradients of those weights whose source does not defer (ParameterSource::defers()). run()
// makes the others: by products, from the operands that the layers have kept, or from a copy, where
// a kernel made the gradient together with another result. Each weight gets its contributions in
// the usual order, so its gradient has the same bits; only two contributions to one weight in a
// 16-bit dtype are rounded otherwise. (Qi et al. 2024, "Zero Bubble Pipeline Parallelism".)
#pragma once

#include <functional>
#include <vector>

#include "autograd/parameter.h"

namespace zinc::autograd {

class DeferredGradients {
 public:
  using Write = std::function<void(const GradientTarget&)>;

  bool empty() const { return steps_.empty(); }
  // Writes the gradients that are left and calls gradient_done() of their sources. Memory that was
  // kept for them is freed step by step.
  void run();

 private:
  friend class BackwardEngine;
  struct Step {
    Parameter* parameter = nullptr;
    Write write{};         // empty: the parameter's gradient is finished
    bool is_zero = false;  // finished, and nothing was written
  };
  std::vector<Step> steps_;
};

}  // namespace zinc::autograd
