#include "optim/schedule_free.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/element_update.h"
#include "optim/element_rule.h"

namespace zinc::optim {
namespace {

using kernels::UpdateRule;

// Places in HyperParameters::carried.
constexpr size_t kLargestRate = 0, kSum = 1;

}  // namespace

ScheduleFreeAdamW::ScheduleFreeAdamW(const ScheduleFreeOptions& options) : options_(options) {
  require(options.warmup_steps >= 0, name(), ": warmup_steps must not be negative, got ",
          options.warmup_steps);
  require(options.r >= 0.0 && options.weight_lr_power >= 0.0, name(),
          ": r and weight_lr_power must not be negative, got ", options.r, " and ",
          options.weight_lr_power);
}

std::string_view ScheduleFreeAdamW::state_name(int i) const {
  require(i == 0 || i == 1, name(), ": there is no state ", i);
  return i == 0 ? "z" : "exp_avg_sq";
}

double ScheduleFreeAdamW::rate_of(const HyperParameters& hyper, int64_t step) const {
  if (step >= options_.warmup_steps) return hyper.lr;
  return hyper.lr * (static_cast<double>(step) / static_cast<double>(options_.warmup_steps));
}

double ScheduleFreeAdamW::share_of(double largest_rate, int64_t step) const {
  return std::pow(static_cast<double>(step), options_.r) *
         std::pow(largest_rate, options_.weight_lr_power);
}

Carried ScheduleFreeAdamW::carried(const HyperParameters& hyper, int64_t step) const {
  Carried next{};
  next[kLargestRate] = std::max(hyper.carried[kLargestRate], rate_of(hyper, step));
  next[kSum] = hyper.carried[kSum] + share_of(next[kLargestRate], step);
  return next;
}

int64_t ScheduleFreeAdamW::num_scalars() const {
  return kernels::num_update_values(UpdateRule::schedulefree);
}

kernels::UpdateConstants ScheduleFreeAdamW::constants_of(const HyperParameters& hyper,
                                                         int64_t step) const {
  require(hyper.beta1 > 0.0, name(), ": beta1 must be above 0");
  const double share = share_of(hyper.carried[kLargestRate], step);
  const double sum = hyper.carried[kSum];
  return {.lr = rate_of(hyper, step),
          .beta1 = hyper.beta1,
          .beta2 = hyper.beta2,
          .eps = hyper.eps,
          .weight_decay = hyper.weight_decay,
          .average = sum > 0.0 ? share / sum : 0.0};
}

void ScheduleFreeAdamW::scalars(const HyperParameters& hyper, int64_t step,
                                std::span<float> values) const {
  kernels::update_values(
      {.rule = UpdateRule::schedulefree, .constants = constants_of(hyper, step), .step = step},
      values);
}

void ScheduleFreeAdamW::update(const Update& args, const HyperParameters& hyper,
                               StreamRef stream) const {
  kernels::ElementUpdate update = element_update_of(args, /*seed=*/0);
  update.rule = UpdateRule::schedulefree;
  update.constants = constants_of(hyper, args.step);
  kernels::element_update(update, stream);
}

void ScheduleFreeAdamW::evaluated(const Update& args, const HyperParameters& hyper,
                                  StreamRef stream) const {
  require(hyper.beta1 > 0.0, name(), ": beta1 must be above 0");
  kernels::element_update({.rule = UpdateRule::schedulefree_average,
                           .gradient = args.weights,
                           .states = {args.states[0]},
                           .direction = args.model_weights,
                           .constants = {.beta1 = hyper.beta1}},
                          stream);
}

}  // namespace zinc::optim
