// optim/optimizer_config.h: the kind of update rule and its constants.
#pragma once

#include <cstdint>
#include <string_view>

#include "optim/optimizer.h"

namespace zinc::optim {

enum class OptimizerKind : uint8_t {
  sgd,    // DeepSpeed's "SGD": torch.optim.SGD
  adam,   // L2 decay added to the gradient: "Adam" with adam_w_mode false
  adamw,  // decoupled decay: "AdamW", and "Adam" unless adam_w_mode is false
};
std::string_view name_of(OptimizerKind kind);  // "SGD", "Adam", "AdamW"

// The dtype in which the moments of Adam and AdamW are kept between steps.
enum class Moments : uint8_t {
  f32,
  bf16,  // with stochastic rounding: optim/adam.h
};
std::string_view name_of(Moments moments);  // "f32", "bf16"

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  // The first value of every group's hyper-parameters; the decay applies to parameters with
  // Parameter::decays() only.
  HyperParameters hyper{};
  bool nesterov = false;        // SGD only; needs momentum > 0
  double dampening = 0.0;       // SGD only, [0, 1)
  bool bias_correction = true;  // Adam and AdamW
  Moments moments = Moments::f32;
};

}  // namespace zinc::optim
