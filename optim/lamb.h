// optim/lamb.h: LAMB, which scales the step of each parameter by the parameter's norm.
//
// You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", ICLR 2020,
// algorithm 2, as DeepSpeed's Lamb has it:
//
//   m = beta1 m + (1 - beta1) g                         direct(): the rule lamb of
//   v = beta2 v + (1 - beta2) g^2                       kernels/update_table.h
//   d = m / (sqrt(v) + eps) + weight_decay w
//   r = |w| / |d| in [least_ratio, most_ratio]          of the whole parameter; 1 where a norm is 0
//   w = w - lr c r d                                    apply(): the rule sgdw there
//   c = sqrt(1 - beta2^step) / (1 - beta1^step)         1 without bias_correction
//
// So the correction of the moments scales the step, and not d.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/element_update.h"
#include "optim/element_rule.h"
#include "optim/lamb_options.h"
#include "optim/optimizer.h"

namespace zinc::optim {

class Lamb final : public WholeRule {
 public:
  // `seed`: for states with stochastic rounding. Throws InvalidArgument.
  explicit Lamb(const LambOptions& options, bool bias_correction = true, uint64_t seed = 0);

  Asked asked() const override { return Asked::all; }
  bool takes(const autograd::Parameter&) const override { return true; }
  int num_states() const override { return 2; }
  std::string_view state_name(int i) const override;  // "exp_avg", "exp_avg_sq"
  Measures measures() const override { return {.weights = true, .directions = true}; }
  bool transforms() const override { return false; }
  // Throws InvalidArgument for an eps that is not above 0: padding is 0 / eps.
  void direct(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;
  // Of update.rates.
  void apply(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;
  int64_t num_scalars() const override;
  void scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const override;
  int64_t num_rates() const override { return kDecayedStepScalars; }
  void rates(const MeasuredParameter& parameter, const HyperParameters& hyper,
             StreamRef stream) const override;

 private:
  kernels::ElementUpdate direction(const Update& args, const HyperParameters& hyper) const;
  kernels::NormRate rate(const HyperParameters& hyper, int64_t step) const;

  const LambOptions options_;
  const bool bias_correction_;
  const uint64_t seed_;
};

}  // namespace zinc::optim
