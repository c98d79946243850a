#include "optim/adam.h"

#include <limits>

#include "core/error.h"
#include "kernels/adamw.h"

namespace zinc::optim {

std::string_view Adam::state_name(int i) const {
  require(i >= 0 && i < num_states(), name(), ": there is no state ", i);
  return i == 0 ? "exp_avg" : "exp_avg_sq";
}

void Adam::update(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  // beta^step underflows to exactly 0 at the far end, which makes both corrections exactly 1.
  constexpr int64_t kNoCorrection = std::numeric_limits<int64_t>::max();
  kernels::adamw({.weights = args.weights,
                  .gradient = args.gradient,
                  .m = args.states[0],
                  .v = args.states[1],
                  .model_weights = args.model_weights,
                  .factor = args.factor,
                  .skip = args.skip,
                  .step = bias_correction_ ? args.step : kNoCorrection,
                  .lr = hyper.lr,
                  .beta1 = hyper.beta1,
                  .beta2 = hyper.beta2,
                  .eps = hyper.eps,
                  .weight_decay = hyper.weight_decay,
                  .mode = decoupled_ ? kernels::WeightDecay::decoupled : kernels::WeightDecay::l2},
                 stream);
}

}  // namespace zinc::optim
