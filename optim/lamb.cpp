#include "optim/lamb.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "core/error.h"
#include "kernels/element_update.h"
#include "kernels/norm_rate.h"

namespace zinc::optim {
namespace {

// num_update_values() of the rule lamb.
constexpr int64_t kLambScalars = 8;

}  // namespace

Lamb::Lamb(const LambOptions& options, bool bias_correction, uint64_t seed)
    : options_(options), bias_correction_(bias_correction), seed_(seed) {
  require(
      options.least_ratio > 0.0 && options.least_ratio <= options.most_ratio &&
          std::isfinite(options.most_ratio),
      "LAMB: the ratio of the norms must lie between two bounds above 0 (min_coeff, max_coeff), ",
      "not between ", options.least_ratio, " and ", options.most_ratio);
}

std::string_view Lamb::state_name(int i) const {
  constexpr std::array<std::string_view, 2> kMoments{"exp_avg", "exp_avg_sq"};
  require(i >= 0 && i < num_states(), "LAMB: there is no state ", i);
  return kMoments[static_cast<size_t>(i)];
}

kernels::ElementUpdate Lamb::direction(const Update& args, const HyperParameters& hyper) const {
  kernels::ElementUpdate update = element_update_of(args, seed_);
  update.rule = kernels::UpdateRule::lamb;
  update.model_weights = {};
  update.direction = args.direction;
  update.constants = {.beta1 = hyper.beta1,
                      .beta2 = hyper.beta2,
                      .eps = hyper.eps,
                      .weight_decay = hyper.weight_decay};
  return update;
}

kernels::NormRate Lamb::rate(const HyperParameters& hyper, int64_t step) const {
  const auto n = static_cast<double>(step);
  const double correction = bias_correction_ ? std::sqrt(1.0 - std::pow(hyper.beta2, n)) /
                                                   (1.0 - std::pow(hyper.beta1, n))
                                             : 1.0;
  kernels::NormRate rate = decayed_step_rate({.lr = hyper.lr * correction, .seed = seed_}, step);
  rate.least = options_.least_ratio;
  rate.most = options_.most_ratio;
  return rate;
}

int64_t Lamb::num_scalars() const { return kLambScalars + kernels::kNormRateGiven; }

void Lamb::scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const {
  kernels::update_values(direction({.step = step}, hyper), values.first(kLambScalars));
  kernels::norm_rate_given(rate(hyper, step), values.subspan(kLambScalars));
}

void Lamb::direct(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  require(hyper.eps > 0.0, "LAMB: eps must be above 0, got ", hyper.eps);
  kernels::ElementUpdate update = direction(args, hyper);
  if (update.values) update.values = update.values.narrow(0, 0, kLambScalars);
  kernels::element_update(update, stream);
}

void Lamb::rates(const MeasuredParameter& parameter, const HyperParameters& hyper,
                 StreamRef stream) const {
  kernels::NormRate args = rate(hyper, parameter.step);
  args.sums = parameter.sums;
  args.values = parameter.rates;
  if (parameter.scalars) {
    args.given = parameter.scalars.narrow(0, kLambScalars, kernels::kNormRateGiven);
  }
  kernels::norm_rate(args, stream);
}

void Lamb::apply(const Update& args, const HyperParameters&, StreamRef stream) const {
  require(static_cast<bool>(args.rates), "LAMB: apply() without the result of rates()");
  decayed_step(args, {.values = args.rates, .seed = seed_}, stream);
}

}  // namespace zinc::optim
