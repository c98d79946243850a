// optim/one_bit_adam.h: 1-bit Adam.
//
// Tang et al., "1-bit Adam: communication efficient large-scale training with Adam's convergence
// speed", ICML 2021, algorithm 1, as DeepSpeed's OneBitAdam: no correction of the moments' start,
// decay apart from the gradient. Updates 1 to freeze_step are AdamW's. From then on the second
// moment stays, ranks send their momentum as signs (optim/sign_reduction.h), and with the sum m
//   w = w - lr * (m / (sqrt(v) + eps) + weight_decay * w)
// Elements that never had a gradient until then, whose v is 0, are not moved by m, which no rank
// sends as 0: DeepSpeed asks for a mask (exp_avg_mask).
#pragma once

#include <cstdint>
#include <string_view>

#include "optim/element_rule.h"
#include "optim/one_bit_options.h"
#include "optim/optimizer.h"
#include "optim/sign_reduction.h"

namespace zinc::optim {

class OneBitAdam final : public Optimizer, private SignReduction {
 public:
  // `adam`: seed and weights' dtype. Throws InvalidArgument.
  OneBitAdam(const OneBitOptions& options, ElementRuleOptions adam);

  std::string_view name() const override { return "OneBitAdam"; }
  int num_states() const override { return adam_.num_states(); }
  std::string_view state_name(int i) const override { return adam_.state_name(i); }
  DType weights_dtype() const override { return adam_.weights_dtype(); }
  const SignReduction* sign_reduction() const override { return this; }
  void update(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;

 private:
  bool sends_signs(int64_t step) const override { return step > options_.freeze_step; }
  Terms terms(const HyperParameters& hyper) const override {
    return {.keep = hyper.beta1, .share = 1.0 - hyper.beta1};
  }
  int last() const override { return 0; }
  bool scales_parameters() const override { return options_.parameter_scales; }

  const OneBitOptions options_;
  const uint64_t seed_;
  const ElementRule adam_;
};

}  // namespace zinc::optim
