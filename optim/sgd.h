// optim/sgd.h: stochastic gradient descent with momentum as an Optimizer. Formula: kernels/sgd.h.
#pragma once

#include "optim/optimizer.h"

namespace zinc::optim {

// torch.optim.SGD's semantics: decay is added to the gradient, the velocity starts as the first
// gradient. One state, "momentum_buffer", where the rule has momentum, none otherwise; whether it
// has is fixed at construction, so update() throws InvalidArgument where hyper.momentum is zero
// with, or non-zero without.
class Sgd final : public Optimizer {
 public:
  // nesterov needs momentum and dampening 0; dampening in [0, 1) needs momentum; else
  // InvalidArgument.
  explicit Sgd(bool has_momentum, bool nesterov = false, double dampening = 0.0);

  std::string_view name() const override { return "SGD"; }
  int num_states() const override { return has_momentum_ ? 1 : 0; }
  std::string_view state_name(int i) const override;
  void update(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;

 private:
  bool has_momentum_;
  bool nesterov_;
  double dampening_;
};

}  // namespace zinc::optim
