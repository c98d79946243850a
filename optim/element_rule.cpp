#include "optim/element_rule.h"

#include <array>
#include <cstddef>
#include <limits>

#include "core/error.h"

namespace zinc::optim {
namespace {

using kernels::UpdateRule;

bool is_adam(UpdateRule rule) { return rule == UpdateRule::adamw || rule == UpdateRule::amsgrad; }
bool is_sgd(UpdateRule rule) { return rule == UpdateRule::sgd || rule == UpdateRule::momentum; }

}  // namespace

kernels::ElementUpdate element_update_of(const Update& args, uint64_t seed) {
  const auto step = static_cast<uint64_t>(args.step);
  return {.weights = args.weights,
          .gradient = args.gradient,
          .states = args.states,
          .model_weights = args.model_weights,
          .factor = args.factor,
          .skip = args.skip,
          .values = args.scalars,
          .step = args.step,
          .random = {.key = combine_bits(seed, args.site),
                     .counter_high = combine_bits(hash_text("rounding of moments"), step)},
          .first_element = args.first_element,
          .places = args.places};
}

namespace {

kernels::ElementUpdate decayed_update(const Update& args, const DecayedStep& step) {
  kernels::ElementUpdate update = element_update_of(args, step.seed);
  update.rule = UpdateRule::sgdw;
  update.constants = {.lr = step.lr, .weight_decay = step.weight_decay};
  update.values = step.values;
  return update;
}

}  // namespace

void decayed_step(const Update& args, const DecayedStep& step, StreamRef stream) {
  kernels::element_update(decayed_update(args, step), stream);
}

void decayed_step_scalars(const DecayedStep& of, int64_t step, std::span<float> values) {
  kernels::update_values(decayed_update({.step = step}, of), values);
}

kernels::NormRate decayed_step_rate(const DecayedStep& of, int64_t step) {
  return {.lr = of.lr,
          .weight_decay = of.weight_decay,
          .counter_high = decayed_update({.step = step}, of).random.counter_high};
}

ElementRule::ElementRule(const ElementRuleOptions& options) : options_(options) {
  require(name() != "?", "ElementRule: ", name_of(options.rule), " is no optimizer of its own");
  require(!has_blocks() || (options.decoupled && !kernels::state_formats(options.rule).empty()),
          name(), ": only the states of AdamW are kept in 8 bits");
  require(options.states == DType::f32 || num_states() <= 2, name(), ": ", num_states(),
          " states cannot be kept in ", options.states, ", two at most");
  require(options.weights == DType::f32 || (options.weights == DType::bf16 && !has_blocks()),
          name(), ": weights in ", options.weights, " do not go with states in ", options.states);
  const bool has_momentum = options.rule == UpdateRule::momentum;
  require(!options.nesterov || (has_momentum && options.dampening == 0.0), name(),
          ": nesterov needs a momentum and no dampening");
  require(options.dampening >= 0.0 && options.dampening < 1.0 &&
              (has_momentum || options.dampening == 0.0),
          name(), ": dampening must lie in [0, 1) and needs a momentum, got ", options.dampening);
  require(options.lr_decay >= 0.0, name(), ": lr_decay must not be negative, got ",
          options.lr_decay);
}

std::string_view ElementRule::name() const {
  switch (options_.rule) {
    case UpdateRule::adagrad:
      return "Adagrad";
    case UpdateRule::adamw:
    case UpdateRule::amsgrad:
      return options_.decoupled ? "AdamW" : "Adam";
    case UpdateRule::lion:
      return "Lion";
    case UpdateRule::momentum:
    case UpdateRule::sgd:
      return "SGD";
    case UpdateRule::gradient:
    case UpdateRule::lamb:
    case UpdateRule::muon:
    case UpdateRule::onebit:
    case UpdateRule::running_mean:
    case UpdateRule::schedulefree:
    case UpdateRule::schedulefree_average:
    case UpdateRule::sgdw:
      break;  // of optimizers that have several rules
  }
  return "?";
}

std::string_view ElementRule::state_name(int i) const {
  require(i >= 0 && i < num_states(), name(), ": there is no state ", i);
  if (options_.rule == UpdateRule::adagrad) return "sum";
  if (options_.rule == UpdateRule::momentum) return "momentum_buffer";
  constexpr std::array<std::string_view, 3> kMoments{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return kMoments[static_cast<size_t>(i)];
}

std::optional<BlockFormat> ElementRule::state_blocks(int i) const {
  if (!has_blocks()) return std::nullopt;
  return kernels::state_formats(options_.rule)[static_cast<size_t>(i)];
}

kernels::ElementUpdate ElementRule::rule(const Update& args, const HyperParameters& hyper) const {
  // beta^step underflows to exactly 0 at the far end, which makes both corrections exactly 1.
  constexpr int64_t kNoCorrection = std::numeric_limits<int64_t>::max();
  kernels::ElementUpdate update = element_update_of(args, options_.seed);
  update.rule = options_.rule;
  update.constants = {.lr = hyper.lr,
                      .beta1 = hyper.beta1,
                      .beta2 = hyper.beta2,
                      .eps = hyper.eps,
                      .weight_decay = hyper.weight_decay,
                      .decoupled = options_.decoupled,
                      .lr_decay = options_.lr_decay,
                      .momentum = hyper.momentum,
                      .dampening = options_.dampening,
                      .nesterov = options_.nesterov};
  if (is_adam(options_.rule) && !options_.bias_correction) update.step = kNoCorrection;
  return update;
}

void ElementRule::scalars(const HyperParameters& hyper, int64_t step,
                          std::span<float> values) const {
  kernels::update_values(rule({.step = step}, hyper), values);
}

void ElementRule::update(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  const bool has_momentum = options_.rule == UpdateRule::momentum;
  require(!is_sgd(options_.rule) || (hyper.momentum != 0.0) == has_momentum,
          "SGD: momentum became ", hyper.momentum, ", but the optimizer was made ",
          has_momentum ? "with" : "without", " one");
  kernels::element_update(rule(args, hyper), stream);
}

}  // namespace zinc::optim
