#include "optim/lamb.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/error.h"
#include "kernels/element_update.h"
#include "optim/element_rule.h"

namespace zinc::optim {

Lamb::Lamb(const LambOptions& options, bool bias_correction, uint64_t seed)
    : options_(options), bias_correction_(bias_correction), seed_(seed) {
  require(options.least_ratio > 0.0 && options.least_ratio <= options.most_ratio &&
              std::isfinite(options.most_ratio),
          "LAMB: the trust ratio must lie between two bounds above 0, not ", options.least_ratio,
          " and ", options.most_ratio);
}

std::string_view Lamb::state_name(int i) const {
  constexpr std::array<std::string_view, 2> kMoments{"exp_avg", "exp_avg_sq"};
  require(i >= 0 && i < num_states(), "LAMB: there is no state ", i);
  return kMoments[static_cast<size_t>(i)];
}

void Lamb::direct(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  kernels::ElementUpdate update = element_update_of(args, seed_);
  update.rule = kernels::UpdateRule::lamb;
  update.model_weights = {};
  update.direction = args.direction;
  update.constants = {.beta1 = hyper.beta1,
                      .beta2 = hyper.beta2,
                      .eps = hyper.eps,
                      .weight_decay = hyper.weight_decay};
  kernels::element_update(update, stream);
}

void Lamb::apply(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  double ratio = 1.0;
  if (args.sums.weights > 0.0 && args.sums.directions > 0.0) {
    ratio = std::clamp(std::sqrt(args.sums.weights / args.sums.directions), options_.least_ratio,
                       options_.most_ratio);
  }
  const auto step = static_cast<double>(args.step);
  const double correction = bias_correction_ ? std::sqrt(1.0 - std::pow(hyper.beta2, step)) /
                                                   (1.0 - std::pow(hyper.beta1, step))
                                             : 1.0;
  kernels::ElementUpdate update = element_update_of(args, seed_);
  update.rule = kernels::UpdateRule::sgdw;
  update.constants = {.lr = hyper.lr * correction * ratio};
  kernels::element_update(update, stream);
}

}  // namespace zinc::optim
