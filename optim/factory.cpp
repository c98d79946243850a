#include "optim/factory.h"

#include "core/error.h"
#include "optim/adafactor.h"
#include "optim/element_rule.h"
#include "optim/lamb.h"
#include "optim/muon.h"
#include "optim/one_bit_adam.h"
#include "optim/schedule_free.h"
#include "optim/whole_optimizer.h"

namespace zinc::optim {

using kernels::UpdateRule;

std::string_view name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd:
      return "SGD";
    case OptimizerKind::adam:
      return "Adam";
    case OptimizerKind::adamw:
      return "AdamW";
    case OptimizerKind::lion:
      return "Lion";
    case OptimizerKind::adagrad:
      return "Adagrad";
    case OptimizerKind::muon:
      return "Muon";
    case OptimizerKind::adam8bit:
      return "Adam8bit";
    case OptimizerKind::lamb:
      return "LAMB";
    case OptimizerKind::adafactor:
      return "Adafactor";
    case OptimizerKind::schedule_free:
      return "ScheduleFreeAdamW";
    case OptimizerKind::one_bit_adam:
      return "OneBitAdam";
  }
  return "?";
}

std::string_view name_of(Moments moments) { return moments == Moments::bf16 ? "bf16" : "f32"; }

namespace {

void check(std::string_view name, const HyperParameters& hyper) {
  require(hyper.lr >= 0.0, name, ": lr must not be negative, got ", hyper.lr);
  require(hyper.weight_decay >= 0.0, name, ": weight_decay must not be negative, got ",
          hyper.weight_decay);
  require(hyper.momentum >= 0.0, name, ": momentum must not be negative, got ", hyper.momentum);
  require(hyper.beta1 >= 0.0 && hyper.beta1 < 1.0 && hyper.beta2 >= 0.0 && hyper.beta2 < 1.0, name,
          ": betas must lie in [0, 1), got ", hyper.beta1, " and ", hyper.beta2);
  require(hyper.eps >= 0.0, name, ": eps must not be negative, got ", hyper.eps);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, uint64_t seed) {
  const HyperParameters& hyper = config.hyper;
  check(name_of(config.kind), hyper);
  ElementRuleOptions options{.decoupled = config.kind != OptimizerKind::adam,
                             .bias_correction = config.bias_correction,
                             .states = config.moments == Moments::bf16 ? DType::bf16 : DType::f32,
                             .weights = config.narrow_weights ? DType::bf16 : DType::f32,
                             .seed = seed};
  switch (config.kind) {
    case OptimizerKind::sgd:
      require(config.moments == Moments::f32,
              "SGD: moments in bf16 are for Adam and AdamW; leave zinc.moments out");
      options.rule = hyper.momentum != 0.0 ? UpdateRule::momentum : UpdateRule::sgd;
      options.dampening = config.dampening;
      options.nesterov = config.nesterov;
      break;
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      options.rule = config.amsgrad ? UpdateRule::amsgrad : UpdateRule::adamw;
      break;
    case OptimizerKind::lion:
      options.rule = UpdateRule::lion;
      break;
    case OptimizerKind::adagrad:
      options.rule = UpdateRule::adagrad;
      options.lr_decay = config.lr_decay;
      break;
    case OptimizerKind::muon:
      check("Muon", config.matrix_hyper);
      require(config.matrix_hyper.momentum < 1.0, "Muon: momentum must lie in [0, 1), got ",
              config.matrix_hyper.momentum);
      return std::make_unique<MuonWithAdamW>(config.muon, options);
    case OptimizerKind::adam8bit:
      require(config.moments == Moments::f32 && !config.amsgrad,
              "Adam8bit: its two moments are in 8 bits; leave zinc.moments and amsgrad out");
      options.states = DType::u8;
      break;
    case OptimizerKind::lamb:
      require(hyper.eps > 0.0, "LAMB: eps must be above 0, got ", hyper.eps);
      return std::make_unique<WholeOptimizer>(
          name_of(config.kind), std::make_unique<Lamb>(config.lamb, config.bias_correction, seed),
          options.states, options.weights);
    case OptimizerKind::adafactor:
      require(config.moments == Moments::f32,
              "Adafactor: it keeps no moments of elements; leave zinc.moments out");
      return std::make_unique<WholeOptimizer>(name_of(config.kind),
                                              std::make_unique<Adafactor>(config.adafactor, seed),
                                              DType::f32, options.weights);
    case OptimizerKind::schedule_free:
      require(config.moments == Moments::f32 && !config.narrow_weights,
              "ScheduleFreeAdamW: its average is of weights of f32; leave zinc.moments and "
              "bf16.bf16_master_weights_and_grads out");
      require(hyper.beta1 > 0.0, "ScheduleFreeAdamW: beta1 must be above 0");
      return std::make_unique<ScheduleFreeAdamW>(config.schedule_free);
    case OptimizerKind::one_bit_adam:
      return std::make_unique<OneBitAdam>(config.one_bit, options);
  }
  return std::make_unique<ElementRule>(options);
}

}  // namespace zinc::optim
