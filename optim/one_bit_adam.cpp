#include "optim/one_bit_adam.h"

#include "core/error.h"

namespace zinc::optim {
namespace {

ElementRuleOptions without_correction(ElementRuleOptions options) {
  require(options.rule == kernels::UpdateRule::adamw && options.states == DType::f32,
          "OneBitAdam: its two moments are of f32; leave zinc.moments and amsgrad out");
  options.bias_correction = false;
  return options;
}

}  // namespace

OneBitAdam::OneBitAdam(const OneBitOptions& options, ElementRuleOptions adam)
    : options_(options), seed_(adam.seed), adam_(without_correction(adam)) {
  require(options.freeze_step > 0, "OneBitAdam: freeze_step must be above 0, got ",
          options.freeze_step);
}

void OneBitAdam::update(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  if (!sends_signs(args.step)) return adam_.update(args, hyper, stream);
  kernels::ElementUpdate update = element_update_of(args, seed_);
  update.rule = kernels::UpdateRule::onebit;
  update.constants = {.lr = hyper.lr, .eps = hyper.eps, .weight_decay = hyper.weight_decay};
  kernels::element_update(update, stream);
}

}  // namespace zinc::optim
