#include <cmath>

#include "kernels/update_table.h"

namespace zinc::kernels {

std::string_view name_of(UpdateRule rule) {
  constexpr std::string_view kNames[] = {
#define ZINC_ROW(name, ...) #name,
      ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  };
  return kNames[static_cast<int>(rule)];
}

int num_states(UpdateRule rule) {
  constexpr int kStates[] = {
#define ZINC_ROW(name, states, ...) states,
      ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  };
  return kStates[static_cast<int>(rule)];
}

int num_scalars(UpdateRule rule) {
  constexpr int kScalars[] = {
#define ZINC_ROW(name, states, scalars, ...) scalars,
      ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  };
  return kScalars[static_cast<int>(rule)];
}

int64_t update_flops(UpdateRule rule, const UpdateConstants& constants) {
  const int64_t decay = constants.weight_decay != 0.0 ? 2 : 0;
  switch (rule) {
    case UpdateRule::adagrad:
      return 8 + decay;
    case UpdateRule::adamw:
      return 14 + decay;
    case UpdateRule::amsgrad:
      return 15 + decay;
    case UpdateRule::gradient:
      return 1;
    case UpdateRule::lamb:
      return 10 + decay;
    case UpdateRule::lion:
      return 10 + decay;
    case UpdateRule::momentum:
      return (constants.nesterov ? 8 : 6) + decay;
    case UpdateRule::muon:
      return constants.nesterov ? 6 : 4;
    case UpdateRule::onebit:
      return 6 + decay;
    case UpdateRule::running_mean:
      return 5;
    case UpdateRule::schedulefree:
      return 15 + decay;
    case UpdateRule::schedulefree_average:
      return 4;
    case UpdateRule::sgd:
    case UpdateRule::sgdw:
      return 3 + decay;
  }
  return 0;
}

// Those that the formulas subtract are negative here. A decay that the rule does not use is 0.
UpdateScalars update_scalars(UpdateRule rule, const UpdateConstants& constants, int64_t step) {
  const auto n = static_cast<double>(step);
  const auto& [lr, beta1, beta2, eps, weight_decay, decoupled, lr_decay, momentum, dampening,
               nesterov, average] = constants;
  switch (rule) {
    case UpdateRule::adagrad:
      return {-lr / (1.0 + (n - 1.0) * lr_decay), eps, weight_decay};
    case UpdateRule::adamw:
    case UpdateRule::amsgrad:
      return {beta1,
              1.0 - beta1,
              beta2,
              1.0 - beta2,
              -lr / (1.0 - std::pow(beta1, n)),
              1.0 / std::sqrt(1.0 - std::pow(beta2, n)),
              eps,
              decoupled ? -lr * weight_decay : 0.0,
              decoupled ? 0.0 : weight_decay};
    case UpdateRule::gradient:
      return {};
    case UpdateRule::lamb:
      return {beta1, 1.0 - beta1, beta2, 1.0 - beta2, eps, weight_decay};
    case UpdateRule::lion:
      return {beta1, 1.0 - beta1, beta2, 1.0 - beta2, -lr, -lr * weight_decay};
    case UpdateRule::momentum:
      return {-lr,
              weight_decay,
              momentum,
              1.0 - dampening,
              nesterov ? 1.0 : 0.0,
              step == 1 ? 1.0 : 0.0};
    case UpdateRule::muon:
      return {momentum, 1.0 - momentum, nesterov ? 1.0 : 0.0};
    case UpdateRule::onebit:
      return {-lr, eps, -lr * weight_decay};
    case UpdateRule::running_mean:
      return {beta2, 1.0 - beta2, (1.0 - beta2) * eps};
    case UpdateRule::schedulefree:
      return {beta2,        1.0 - beta2, 1.0 / std::sqrt(1.0 - std::pow(beta2, n)), eps,
              weight_decay, average,     lr * (beta1 * (1.0 - average) - 1.0),      -lr};
    case UpdateRule::schedulefree_average:
      return {1.0 - 1.0 / beta1};
    case UpdateRule::sgd:
      return {-lr, weight_decay};
    case UpdateRule::sgdw:
      return {-lr, -lr * weight_decay};
  }
  return {};
}

}  // namespace zinc::kernels
