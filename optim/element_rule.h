// optim/element_rule.h: the element-wise update rules as Optimizers: Adam, AdamW, Lion, Adagrad,
// SGD, and AdamW with moments in 8 bits. Formulas: Note [Bits of an update] in
// kernels/update_table.h. Names of states are PyTorch's.
//
//   rule      name            states
//   adagrad   Adagrad         sum
//   adamw     AdamW or Adam   exp_avg, exp_avg_sq
//   amsgrad   AdamW or Adam   exp_avg, exp_avg_sq, max_exp_avg_sq
//   lion      Lion            exp_avg
//   momentum  SGD             momentum_buffer
//   sgd       SGD
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/element_update.h"
#include "kernels/norm_rate.h"
#include "optim/optimizer.h"

namespace zinc::optim {

struct ElementRuleOptions {
  kernels::UpdateRule rule = kernels::UpdateRule::adamw;
  bool decoupled = true;        // adamw, amsgrad: AdamW; false: Adam, whose decay is L2
  bool bias_correction = true;  // adamw, amsgrad: false leaves the moments as they are
  double dampening = 0.0;       // momentum, in [0, 1)
  bool nesterov = false;        // momentum; needs dampening 0
  double lr_decay = 0.0;        // adagrad, at least 0
  // f32 | bf16 | u8, beside f32 weights; bf16 for rules with at most two states. They are rounded
  // stochastically: Note [States in 16 bits] in kernels/element_update.h. The random word of an
  // element depends on the seed, the step, the parameter and the element's place in the whole of it
  // alone. So bits do not depend on how elements are spread over ranks, tiers and tiles.
  // u8, for AdamW alone: in blocks of 8 bits, Note [Bits of states in blocks] there. The name stays
  // AdamW, for checkpoints are the same.
  DType states = DType::f32;
  // f32 | bf16: Optimizer::weights_dtype(). bf16: Note [Weights in 16 bits] there; with states of
  // f32 or bf16.
  DType weights = DType::f32;
  uint64_t seed = 0;  // for stochastic rounding
};

// An update without rule and constants: the operands and the step of `args`, and the key by which
// states and weights in bf16 are rounded.
kernels::ElementUpdate element_update_of(const Update& args, uint64_t seed);

// The last line of a whole rule: w = w - lr weight_decay w - lr s, s in the gradient's place, by
// the rule sgdw. `values`: ElementUpdate::values, in place of the two numbers and the step; may be
// absent.
struct DecayedStep {
  double lr = 0.0, weight_decay = 0.0;
  ConstView values{};
  uint64_t seed = 0;  // for stochastic rounding
};
void decayed_step(const Update& args, const DecayedStep& step, StreamRef stream);
inline constexpr int64_t kDecayedStepScalars = 4;
// `values` of update number `step`: [kDecayedStepScalars].
void decayed_step_scalars(const DecayedStep& of, int64_t step, std::span<float> values);
// The numbers with which norm_rate() makes `values` of a step.
kernels::NormRate decayed_step_rate(const DecayedStep& of, int64_t step);

class ElementRule final : public Optimizer {
 public:
  // Throws InvalidArgument.
  explicit ElementRule(const ElementRuleOptions& options);

  std::string_view name() const override;
  int num_states() const override { return kernels::num_states(options_.rule); }
  std::string_view state_name(int i) const override;
  DType state_dtype() const override { return has_blocks() ? DType::f32 : options_.states; }
  DType weights_dtype() const override { return options_.weights; }
  std::optional<BlockFormat> state_blocks(int i) const override;
  int64_t num_scalars() const override { return kernels::num_update_values(options_.rule); }
  void scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const override;
  // SGD: throws InvalidArgument if hyper.momentum is not as the rule has it.
  void update(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;

 private:
  bool has_blocks() const { return options_.states == DType::u8; }
  kernels::ElementUpdate rule(const Update& args, const HyperParameters& hyper) const;

  const ElementRuleOptions options_;
};

}  // namespace zinc::optim
