// optim/sgd.h: stochastic gradient descent with momentum as an Optimizer. Formula: kernels/sgd.h.
#pragma once

#include "optim/optimizer.h"

namespace zinc::optim {

// As torch.optim.SGD: decay is added to the gradient, and the velocity starts as the first
// gradient. With momentum there is one state, "momentum_buffer", otherwise none. The constructor
// fixes this. update() throws InvalidArgument if hyper.momentum does not match.
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
