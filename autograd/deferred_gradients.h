// autograd/deferred_gradients.h: gradients of weights that a backward pass leaves for later.
//
// A backward pass that is given one of these makes the gradients of all values as ever, and of
// weights only those whose source does not defer (ParameterSource::defers()). The others are made
// by run(): products from what the product and its backward have kept, and what a kernel has made
// along with something else from a copy. Each weight gets its contributions in the order in which
// it would have got them, so its gradient has the same bits; only two contributions to one weight
// in a 16-bit dtype are rounded otherwise. (Qi et al. 2024, "Zero Bubble Pipeline Parallelism".)
#pragma once

#include <functional>
#include <vector>

#include "autograd/parameter.h"

namespace zinc::autograd {

class DeferredGradients {
 public:
  using Write = std::function<void(const GradientTarget&)>;

  bool empty() const { return steps_.empty(); }
  // Writes what is left, and tells sources of finished gradients: gradient_done(). What was kept
  // for it is freed step by step.
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
