// autograd/label_smoothing.h: smooths the labels of every cross entropy in a scope.
#pragma once

#include "core/context.h"

namespace zinc::autograd {

// While the object lives, cross_entropy() and linear_cross_entropy() of the current context smooth
// their labels: kernels/cross_entropy.h. The engine uses one around training passes, and none in
// evaluation. Scopes nest.
class LabelSmoothing {
 public:
  explicit LabelSmoothing(double smoothing) : current_(slot()), before_(current_) {
    current_ = smoothing;
  }
  ~LabelSmoothing() { current_ = before_; }
  LabelSmoothing(const LabelSmoothing&) = delete;
  LabelSmoothing& operator=(const LabelSmoothing&) = delete;

  static double current() { return slot(); }

 private:
  struct Value {
    double smoothing = 0.0;
  };
  static double& slot() { return Context::current().slot<Value>().smoothing; }

  double& current_;
  double before_;
};

}  // namespace zinc::autograd
