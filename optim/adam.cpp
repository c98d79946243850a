#include "optim/adam.h"

#include <limits>

#include "core/error.h"

namespace zinc::optim {

std::string_view Adam::state_name(int i) const {
  require(i >= 0 && i < num_states(), name(), ": there is no state ", i);
  return i == 0 ? "exp_avg" : "exp_avg_sq";
}

kernels::AdamW Adam::rule(const HyperParameters& hyper, int64_t step) const {
  // beta^step underflows to exactly 0 at the far end, which makes both corrections exactly 1.
  constexpr int64_t kNoCorrection = std::numeric_limits<int64_t>::max();
  return {.step = bias_correction_ ? step : kNoCorrection,
          .lr = hyper.lr,
          .beta1 = hyper.beta1,
          .beta2 = hyper.beta2,
          .eps = hyper.eps,
          .weight_decay = hyper.weight_decay,
          .mode = decoupled_ ? kernels::WeightDecay::decoupled : kernels::WeightDecay::l2,
          .random = {.key = 0,
                     .counter_high = combine_bits(hash_text("rounding of moments"),
                                                  static_cast<uint64_t>(step))}};
}

int64_t Adam::num_scalars() const { return kernels::kNumAdamWScalars; }

void Adam::scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const {
  kernels::adamw_scalars(rule(hyper, step), values);
}

void Adam::update(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  kernels::AdamW update = rule(hyper, args.step);
  update.weights = args.weights;
  update.gradient = args.gradient;
  update.m = args.states[0];
  update.v = args.states[1];
  update.model_weights = args.model_weights;
  update.factor = args.factor;
  update.skip = args.skip;
  update.scalars = args.scalars;
  update.random.key = combine_bits(seed_, args.site);
  update.first_element = args.first_element;
  update.places = args.places;
  kernels::adamw(update, stream);
}

}  // namespace zinc::optim
