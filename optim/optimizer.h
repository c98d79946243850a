// optim/optimizer.h: element-wise update rules over flat ranges.
//
// An optimizer owns no parameters and no states. It names the states that it needs and updates any
// contiguous range of them. So one rule serves a whole model, a shard, or a sub-group in a staging
// buffer. For parameters that have to be seen whole an optimizer may have a rule of their own.
// A client's own optimizer implements the same interface.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_format.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/element_places.h"
#include "optim/hyper_parameters.h"
#include "optim/sign_reduction.h"
#include "optim/whole_rule.h"

namespace zinc::optim {

inline constexpr int kMaxOptimizerStates = 4;

// The states that a rule keeps for an element beside its weight.
struct States {
  int count = 0;                  // of an element that Optimizer::update() sees
  int in_whole = 0;               // of an element of a parameter that the whole rule takes
  DType beside_f32 = DType::f32;  // f32 | bf16: the dtype of states of f32 weights
  DType weights = DType::f32;     // f32 | bf16: Optimizer::weights_dtype()
  // States of an element that update() sees which f32 weights have in blocks, in place of a dtype.
  std::array<std::optional<BlockFormat>, kMaxOptimizerStates> blocks{};
  bool apart = false;  // Optimizer::evaluates_apart(): the model's weights are a copy on all tiers
  std::array<bool, kMaxOptimizerStates> are_weights{};  // Optimizer::state_is_weight()
  // The dtype of the states of weights of dtype `weights`, f32 | f64; and the blocks of a state, by
  // its place in Optimizer::state_names().
  DType dtype(DType weights) const { return weights == DType::f32 ? beside_f32 : weights; }
  std::optional<BlockFormat> blocks_of(int state, DType weights) const {
    const bool may = weights == DType::f32 && state < count;
    return may ? blocks[static_cast<size_t>(state)] : std::nullopt;
  }
};

struct Update {
  View weights;        // [n] f32 | f64 master weights, or weights_dtype(), updated in place
  ConstView gradient;  // [n] f32 | bf16 | f16 (f64 with f64), unscaled sum
  // [n], as many and of the dtype that states() says; in blocks: [encoded_bytes(n)] u8
  std::array<View, kMaxOptimizerStates> states;
  View direction{};      // [n] for WholeRule::direct() alone
  ParameterSums sums{};  // for WholeRule::apply() alone
  ConstView rates{};     // the same: [num_rates()], what WholeRule::rates() made
  View model_weights;    // [n] any float dtype: a copy of the result; may be absent
  ConstView factor;  // [1] f32 on the device: multiplies the gradient (1 / loss scale, count, clip)
  ConstView skip;    // [1] i32 on the device, may be absent: non-zero leaves every bit as it is
  // [num_scalars()] f32 on the device, may be absent: the result of scalars(), of the optimizer or
  // of its whole rule. Hyper-parameters and step are not read then.
  ConstView scalars;
  int64_t step = 1;  // number of this update, from 1: for bias corrections (computed in f64)
  // For rules with stochastic rounding. Element i of the range is element first_element + i of this
  // rank's part of the parameter that `site` names, and is at places.place(first_element + i) in
  // the whole parameter. The range then lies in one parameter and the padding behind it.
  uint64_t site = 0;
  int64_t first_element = 0;
  kernels::ElementPlaces places{};
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;  // "AdamW"
  virtual int num_states() const = 0;
  virtual std::string_view state_name(int i) const = 0;  // checkpoint names: "exp_avg"
  // The dtype of the states of f32 weights: f32, or bf16 for a rule with stochastic rounding.
  virtual DType state_dtype() const { return DType::f32; }
  // The dtype of the weights that are updated where a model has bf16: f32, which are master
  // weights, or bf16, for a rule with stochastic rounding. Then there are no others.
  virtual DType weights_dtype() const { return DType::f32; }
  // The blocks in which state i of f32 weights is kept, in place of that dtype; absent: none. The
  // ranges that update() sees then have whole chunks (core/block_format.h) of one parameter or
  // several, each from the beginning of a chunk on, and zeros behind its end.
  virtual std::optional<BlockFormat> state_blocks(int i) const {
    static_cast<void>(i);
    return std::nullopt;
  }
  // True: state i is a weight, too. It begins as the weight of its element, and whoever sets that
  // sets it. False: it begins as 0.
  virtual bool state_is_weight(int i) const {
    static_cast<void>(i);
    return false;
  }
  States states() const;
  // The names of all states: the optimizer's, then those of its whole rule, then its vectors.
  std::vector<std::string_view> state_names() const;
  // The rule of parameters that are seen whole; null: there are none.
  virtual const WholeRule* whole_rule() const { return nullptr; }
  // How gradients travel as signs; null: they do not.
  virtual const SignReduction* sign_reduction() const { return nullptr; }
  // Whether an update has to lie in one parameter: for Update::site or Update::sums.
  bool sees_parameters() const {
    return state_dtype() != DType::f32 || weights_dtype() != DType::f32 ||
           (whole_rule() != nullptr && whole_rule()->measures().any());
  }
  // The place of a state in state_names(); throws InvalidArgument with all names.
  int state_index(std::string_view state) const;
  // The number of scalars through which a step changes update()'s kernels, for work that is queued
  // once and runs in many steps. 0: the rule has no such form, and Update::scalars is absent. Not
  // for f64 weights.
  virtual int64_t num_scalars() const { return 0; }
  virtual void scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const {
    static_cast<void>(hyper);
    static_cast<void>(step);
    static_cast<void>(values);
  }
  // Whether all of an update has such a form.
  bool has_scalars() const {
    const WholeRule* const whole = whole_rule();
    if (whole == nullptr) return num_scalars() > 0;
    const bool takes_all = whole->asked() == WholeRule::Asked::all;
    return whole->num_scalars() > 0 && (takes_all || num_scalars() > 0);
  }
  // How many numbers the rule carries for a parameter group from one update to the next, beside the
  // states of elements: at most kMaxCarried. They are 0 before update 1, and in checkpoints.
  virtual int num_carried() const { return 0; }
  // Those of update `step`, from the hyper-parameters of that update and hyper.carried of the one
  // before. A skipped update leaves them as they are.
  virtual Carried carried(const HyperParameters& hyper, int64_t step) const {
    static_cast<void>(step);
    return hyper.carried;
  }
  // Whether the weights with which the model is evaluated, generates and is saved are others than
  // those that it is trained with: evaluated().
  virtual bool evaluates_apart() const { return false; }
  // Writes them to args.model_weights, from args.weights and args.states, which stay as they are.
  // The other operands are absent. Where states are weights that were just set, they are the
  // weights. Asynchronous on `stream`; element i depends on element i alone.
  virtual void evaluated(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
    static_cast<void>(args);
    static_cast<void>(hyper);
    static_cast<void>(stream);
  }
  // Asynchronous on `stream`; deterministic; element i depends on element i alone, or on its block.
  virtual void update(const Update& args, const HyperParameters& hyper, StreamRef stream) const = 0;
};

}  // namespace zinc::optim
