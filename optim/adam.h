// optim/adam.h: Adam and AdamW as Optimizers. Formula: kernels/adamw.h.
#pragma once

#include "kernels/adamw.h"
#include "optim/optimizer.h"

namespace zinc::optim {

// Two states: "exp_avg" and "exp_avg_sq", as PyTorch names them.
//
// In bf16 the states are rounded stochastically (kernels/stochastic_rounding.h). The random word of
// an element depends on the seed, the step, the parameter and the element's place in the whole of
// it alone. So bits do not depend on how elements are spread over ranks, tiers and tiles.
class Adam final : public Optimizer {
 public:
  // decoupled: AdamW (decay beside the gradient); otherwise Adam (decay inside it).
  // bias_correction false leaves the moments as they are; PyTorch and DeepSpeed correct.
  // moments: f32 | bf16, beside f32 weights. `seed`: for stochastic rounding.
  explicit Adam(bool decoupled, bool bias_correction = true, DType moments = DType::f32,
                uint64_t seed = 0)
      : decoupled_(decoupled), bias_correction_(bias_correction), moments_(moments), seed_(seed) {}

  std::string_view name() const override { return decoupled_ ? "AdamW" : "Adam"; }
  int num_states() const override { return 2; }
  std::string_view state_name(int i) const override;
  DType state_dtype() const override { return moments_; }
  int64_t num_scalars() const override;
  void scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const override;
  void update(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;

 private:
  kernels::AdamW rule(const HyperParameters& hyper, int64_t step) const;

  bool decoupled_;
  bool bias_correction_;
  DType moments_;
  uint64_t seed_;
};

}  // namespace zinc::optim
