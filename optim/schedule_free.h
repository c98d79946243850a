// optim/schedule_free.h: AdamW without a schedule, which averages weights instead.
//
// Defazio et al., "The road less scheduled", NeurIPS 2024, as AdamWScheduleFree of the package
// schedulefree. Three points: z makes the steps, x is the average of its path, and gradients are
// taken at y = beta1 x + (1 - beta1) z. Weights are y while a model trains, and x where it is used:
// Optimizer::evaluated(). x is not kept. Formulas: the rows schedulefree and schedulefree_average
// of kernels/update_table.h. Update t, from 1, has
//   lr_t = lr min(1, t / warmup_steps)
//   lr_max = max(lr_max, lr_t)             carried, from 0 on
//   share = t^r lr_max^weight_lr_power
//   sum = sum + share                      carried, from 0 on
//   average = sum > 0 ? share / sum : 0
// All three begin as w.
#pragma once

#include <cstdint>

#include "kernels/update_table.h"
#include "optim/optimizer.h"
#include "optim/schedule_free_options.h"

namespace zinc::optim {

class ScheduleFreeAdamW final : public Optimizer {
 public:
  // Throws InvalidArgument.
  explicit ScheduleFreeAdamW(const ScheduleFreeOptions& options);

  std::string_view name() const override { return "ScheduleFreeAdamW"; }
  int num_states() const override { return 2; }
  std::string_view state_name(int i) const override;  // "z", "exp_avg_sq"
  bool state_is_weight(int i) const override { return i == 0; }
  int num_carried() const override { return 2; }
  Carried carried(const HyperParameters& hyper, int64_t step) const override;
  bool evaluates_apart() const override { return true; }
  int64_t num_scalars() const override;
  void scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const override;
  // All throw InvalidArgument for a beta1 of 0: y would be z, and say nothing of x.
  void update(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;
  void evaluated(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;

 private:
  kernels::UpdateConstants constants_of(const HyperParameters& hyper, int64_t step) const;
  double rate_of(const HyperParameters& hyper, int64_t step) const;
  double share_of(double largest_rate, int64_t step) const;

  const ScheduleFreeOptions options_;
};

}  // namespace zinc::optim
