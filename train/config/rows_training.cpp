// Rows of batches, of the optimizer and of the use of gradients.
#include "optim/optimizer_config.h"
#include "train/config/row.h"

namespace zinc::train {
namespace {

using optim::OptimizerConfig;
using optim::OptimizerKind;
using zero::EngineConfig;

template <class T>
Setting in_batch(T zero::BatchConfig::*member) {
  return at(&Config::engine, &EngineConfig::batch, member);
}

template <class T>
Setting in_optimizer(T OptimizerConfig::*member) {
  return at(&Config::engine, &EngineConfig::optimizer, member);
}

template <class T>
Setting in_hyper(T optim::HyperParameters::*member) {
  return at(&Config::engine, &EngineConfig::optimizer, &OptimizerConfig::hyper, member);
}

bool is_sgd(const Config& config) { return config.engine.optimizer.kind == OptimizerKind::sgd; }
bool is_adam(const Config& config) { return !is_sgd(config); }

// DeepSpeed's optimizers that zinc lacks.
std::vector<std::pair<std::string, std::string>> optimizers_of_deepspeed() {
  const std::string one_bit =
      "1-bit optimizers save traffic on slow networks, and DeepSpeed refuses them with ZeRO: take "
      "AdamW, and \"communication_data_type\": \"bf16\" for half of the bytes";
  const std::string layerwise = "LAMB scales updates by layer, for very large batches: take AdamW";
  const std::string width =
      "take AdamW, and give each layer its learning rate in EngineOptions::parameter_groups";
  return {{"OneBitAdam", one_bit},
          {"ZeroOneAdam", one_bit},
          {"OneBitLamb", one_bit},
          {"Lamb", layerwise},
          {"FusedLamb", layerwise},
          {"Muon", "take AdamW, or give EngineOptions::optimizer an update rule of your own"},
          {"Lion", "take AdamW, or give EngineOptions::optimizer an update rule of your own"},
          {"Adagrad", "take AdamW, or give EngineOptions::optimizer an update rule of your own"},
          {"MuAdam", width},
          {"MuAdamW", width},
          {"MuSGD",
           "take SGD, and give each layer its learning rate in "
           "EngineOptions::parameter_groups"}};
}

// settle.h looks at adam_w_mode.
Setting optimizer_type() {
  return {.type = KeyType::name,
          .choices = {"Adam", "AdamW", "SGD", "FusedAdam", "CPUAdam"},
          .absent = optimizers_of_deepspeed(),
          .get = [](const Config& config,
                    int64_t) { return files::json::Value(name_of(config.engine.optimizer.kind)); },
          .set =
              [](Config& config, const files::json::Value& value) {
                const std::vector<std::string> kinds{"Adam", "SGD"};
                const size_t index = index_of_name(kinds, value.as_string());
                config.engine.optimizer.kind = index == 0   ? OptimizerKind::adam
                                               : index == 1 ? OptimizerKind::sgd
                                                            : OptimizerKind::adamw;
              }};
}

Setting decoupled_decay() {
  return {.type = KeyType::boolean, .get = [](const Config& config, int64_t) {
            return files::json::Value(config.engine.optimizer.kind != OptimizerKind::adam);
          }};
}

Setting betas() {
  return {.type = KeyType::pair,
          .get =
              [](const Config& config, int64_t) {
                const optim::HyperParameters& hyper = config.engine.optimizer.hyper;
                return files::json::Value(files::json::Array{files::json::Value(hyper.beta1),
                                                             files::json::Value(hyper.beta2)});
              },
          .set =
              [](Config& config, const files::json::Value& value) {
                config.engine.optimizer.hyper.beta1 = value.at(size_t{0}).as_double();
                config.engine.optimizer.hyper.beta2 = value.at(size_t{1}).as_double();
              }};
}

}  // namespace

Rows batch_rows() {
  return {
      works("train_batch_size",
            {.type = KeyType::integer,
             .get = [](const Config& config, int64_t world_size) -> files::json::Value {
               return config.engine.batch.global_batch(config.data_ranks(world_size));
             }},
            between(1, kLargestTotalBatch), "sequences", "of one optimizer step, over all ranks")
          .by_default_as("micro-batch x accumulation x ranks"),
      works("train_micro_batch_size_per_gpu", in_batch(&zero::BatchConfig::micro_batch),
            between(1, kLargestBatch), "sequences", "of one rank and micro-step")
          .with_flag("--batch", &Overrides::micro_batch)
          .by_default_as("train_batch_size / accumulation / ranks"),
      works("gradient_accumulation_steps", in_batch(&zero::BatchConfig::accumulation),
            between(1, kLargestBatch), "micro-steps", "of one optimizer step")
          .with_flag("--grad-accum", &Overrides::accumulation)
          .by_default_as("train_batch_size / micro-batch / ranks, else 1"),
  };
}

Rows optimizer_rows() {
  using optim::HyperParameters;
  const Rows of_adam{
      works("betas", betas(), between(0, 1), "decay of the two moments"),
      works("eps", in_hyper(&HyperParameters::eps), at_least(0),
            "added to the root of the second moment"),
      works("bias_correction", in_optimizer(&OptimizerConfig::bias_correction),
            "divides the moments by what their start at 0 takes"),
      works("adam_w_mode", decoupled_decay(),
            "with \"type\": \"Adam\", false adds the decay to the gradient"),
  };
  const Rows of_sgd{
      works("momentum", in_hyper(&HyperParameters::momentum), at_least(0),
            "share of the last update that stays"),
      works("dampening", in_optimizer(&OptimizerConfig::dampening), between(0, 1),
            "share of the gradient that the momentum leaves out; below 1"),
      works("nesterov", in_optimizer(&OptimizerConfig::nesterov),
            "looks ahead by the momentum; needs one, and no dampening"),
  };
  const Rows params{
      works("lr", in_hyper(&HyperParameters::lr), at_least(0),
            "learning rate that the schedule starts from")
          .with_flag("--lr", &Overrides::lr),
      works("weight_decay", in_hyper(&HyperParameters::weight_decay), at_least(0),
            "not on biases and norms")
          .with_flag("--weight-decay", &Overrides::weight_decay),
      only("Adam, AdamW", is_adam, of_adam),
      only("SGD", is_sgd, of_sgd),
      no_effect("torch_adam", KeyType::boolean, "there is one implementation"),
      refused("amsgrad", "AMSGrad is not implemented"),
      no_effect("fused", KeyType::boolean, "the update is one pass"),
      no_effect("foreach", KeyType::boolean, "the update is one pass"),
      refused("max_grad_norm", "use gradient_clipping"),
      refused("freeze_step", "1-bit optimizers are not implemented"),
  };
  return block("optimizer", "absent: AdamW with its defaults",
               {works("type", optimizer_type(),
                      "in upper or lower case; Adam is AdamW unless adam_w_mode is false"),
                no_effect("legacy_fusion", KeyType::boolean, "there is one implementation"),
                block("params", "constants of the update rule", params)});
}

}  // namespace zinc::train
