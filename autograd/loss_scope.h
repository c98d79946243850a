// autograd/loss_scope.h: how the cross entropies of a scope are computed.
#pragma once

#include "core/context.h"

namespace zinc::autograd {

struct LossOptions {
  double label_smoothing = 0.0;  // kernels/cross_entropy.h
  // For linear_cross_entropy(): Note [Logits of 16 bits] in kernels/linear_cross_entropy.h.
  bool narrow_logits = false;
};

// While the object lives, cross_entropy() and linear_cross_entropy() of the current context follow
// `options`. The engine uses one around training passes, and none in evaluation. Scopes nest.
class LossScope {
 public:
  explicit LossScope(const LossOptions& options) : current_(slot()), before_(current_) {
    current_ = options;
  }
  ~LossScope() { current_ = before_; }
  LossScope(const LossScope&) = delete;
  LossScope& operator=(const LossScope&) = delete;

  static LossOptions current() { return slot(); }

 private:
  static LossOptions& slot() { return Context::current().slot<LossOptions>(); }

  LossOptions& current_;
  LossOptions before_;
};

}  // namespace zinc::autograd
