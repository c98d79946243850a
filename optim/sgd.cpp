#include "optim/sgd.h"

#include "core/error.h"
#include "kernels/sgd.h"

namespace zinc::optim {

Sgd::Sgd(bool has_momentum, bool nesterov, double dampening)
    : has_momentum_(has_momentum), nesterov_(nesterov), dampening_(dampening) {
  require(!nesterov || (has_momentum && dampening == 0.0),
          "SGD: nesterov needs a momentum and no dampening");
  require(dampening >= 0.0 && dampening < 1.0 && (has_momentum || dampening == 0.0),
          "SGD: dampening must lie in [0, 1) and needs a momentum, got ", dampening);
}

std::string_view Sgd::state_name(int i) const {
  require(i >= 0 && i < num_states(), "SGD: there is no state ", i);
  return "momentum_buffer";
}

void Sgd::update(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  require((hyper.momentum != 0.0) == has_momentum_, "SGD: momentum became ", hyper.momentum,
          ", but the optimizer was made ", has_momentum_ ? "with" : "without", " one");
  kernels::sgd({.weights = args.weights,
                .gradient = args.gradient,
                .velocity = args.states[0],
                .model_weights = args.model_weights,
                .factor = args.factor,
                .skip = args.skip,
                .lr = hyper.lr,
                .momentum = hyper.momentum,
                .dampening = dampening_,
                .weight_decay = hyper.weight_decay,
                .nesterov = nesterov_,
                .first_step = args.step == 1},
               stream);
}

}  // namespace zinc::optim
