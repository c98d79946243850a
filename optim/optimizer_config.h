// optim/optimizer_config.h: the kind of update rule and its constants.
#pragma once

#include <cstdint>
#include <string_view>

#include "optim/adafactor_options.h"
#include "optim/lamb_options.h"
#include "optim/muon_options.h"
#include "optim/one_bit_options.h"
#include "optim/optimizer.h"
#include "optim/schedule_free_options.h"

namespace zinc::optim {

enum class OptimizerKind : uint8_t {
  sgd,            // DeepSpeed's "SGD": torch.optim.SGD
  adam,           // L2 decay added to the gradient: "Adam" with adam_w_mode false
  adamw,          // decoupled decay: "AdamW", and "Adam" unless adam_w_mode is false
  lion,           // "Lion": decoupled decay
  adagrad,        // "Adagrad": torch.optim.Adagrad
  muon,           // "Muon": torch.optim.Muon for matrices, AdamW for all else
  adam8bit,       // "Adam8bit": AdamW with moments in blocks of 8 bits, after bitsandbytes
  lamb,           // "Lamb": DeepSpeed's
  adafactor,      // "Adafactor": that of transformers, without a first moment
  schedule_free,  // "ScheduleFreeAdamW": AdamWScheduleFree of the package schedulefree
  one_bit_adam,   // "OneBitAdam": DeepSpeed's
};
// Whether the rule's gradients travel as signs: optim/sign_reduction.h.
inline bool sends_signs(OptimizerKind kind) { return kind == OptimizerKind::one_bit_adam; }
std::string_view name_of(OptimizerKind kind);  // "AdamW"

// The dtype in which the states of all rules but SGD are kept between steps.
enum class Moments : uint8_t {
  f32,
  bf16,  // with stochastic rounding: optim/element_rule.h
};
std::string_view name_of(Moments moments);  // "f32", "bf16"

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  // The first value of every group's hyper-parameters; the decay applies to parameters with
  // Parameter::decays() only.
  HyperParameters hyper{};
  // The same of matrices that a rule sees whole beside another rule for all else.
  HyperParameters matrix_hyper{.lr = 0.02, .momentum = 0.95};
  MuonOptions muon{};                   // Muon only
  LambOptions lamb{};                   // LAMB only
  AdafactorOptions adafactor{};         // Adafactor only
  ScheduleFreeOptions schedule_free{};  // ScheduleFreeAdamW only
  OneBitOptions one_bit{};              // OneBitAdam only
  bool nesterov = false;                // SGD only; needs momentum > 0
  double dampening = 0.0;               // SGD only, [0, 1)
  bool bias_correction = true;          // Adam, AdamW and LAMB
  bool amsgrad = false;                 // Adam and AdamW
  double lr_decay = 0.0;                // Adagrad
  Moments moments = Moments::f32;
  bool narrow_weights = false;  // no f32 master weights: those of a bf16 model are updated
};

}  // namespace zinc::optim
