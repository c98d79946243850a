// Rows of batches, of the optimizer and of the use of gradients.
#include <array>

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

template <OptimizerKind... kKinds>
bool is_one_of(const Config& config) {
  return ((config.engine.optimizer.kind == kKinds) || ...);
}

// DeepSpeed's optimizers that zinc lacks.
std::vector<std::pair<std::string, std::string>> optimizers_of_deepspeed() {
  const std::string one_bit =
      "take OneBitAdam, which sends as little; or AdamW, and \"communication_data_type\": "
      "\"bf16\" for half of the bytes";
  const std::string width =
      "take AdamW, and give each layer its learning rate in EngineOptions::parameter_groups";
  return {{"ZeroOneAdam", one_bit},
          {"OneBitLamb", one_bit},
          {"MuAdam", width},
          {"MuAdamW", width},
          {"MuSGD",
           "take SGD, and give each layer its learning rate in "
           "EngineOptions::parameter_groups"}};
}

// settle.h looks at adam_w_mode.
Setting optimizer_type() {
  return {.type = KeyType::name,
          .choices = {"Adam", "AdamW", "SGD", "Lion", "Adagrad", "Muon", "FusedAdam", "CPUAdam",
                      "Adam8bit", "AdamW8bit", "Lamb", "FusedLamb", "Adafactor",
                      "ScheduleFreeAdamW", "OneBitAdam"},
          .absent = optimizers_of_deepspeed(),
          .get = [](const Config& config,
                    int64_t) { return files::json::Value(name_of(config.engine.optimizer.kind)); },
          .set =
              [](Config& config, const files::json::Value& value) {
                const std::vector<std::string> names{"Adam",
                                                     "SGD",
                                                     "Lion",
                                                     "Adagrad",
                                                     "Muon",
                                                     "Adam8bit",
                                                     "AdamW8bit",
                                                     "Lamb",
                                                     "FusedLamb",
                                                     "Adafactor",
                                                     "ScheduleFreeAdamW",
                                                     "OneBitAdam"};
                constexpr std::array kKinds{
                    OptimizerKind::adam,          OptimizerKind::sgd,
                    OptimizerKind::lion,          OptimizerKind::adagrad,
                    OptimizerKind::muon,          OptimizerKind::adam8bit,
                    OptimizerKind::adam8bit,      OptimizerKind::lamb,
                    OptimizerKind::lamb,          OptimizerKind::adafactor,
                    OptimizerKind::schedule_free, OptimizerKind::one_bit_adam};
                const size_t index = index_of_name(names, value.as_string());
                OptimizerConfig& optimizer = config.engine.optimizer;
                optimizer.kind = index < kKinds.size() ? kKinds.at(index) : OptimizerKind::adamw;
                // What the rule's authors, DeepSpeed and PyTorch take where nothing is said.
                if (optimizer.kind == OptimizerKind::lion) optimizer.hyper.beta2 = 0.99;
                if (optimizer.kind == OptimizerKind::muon) {
                  optimizer.hyper = {.lr = 3e-4, .beta2 = 0.95, .eps = 1e-10};
                }
                if (optimizer.kind == OptimizerKind::schedule_free) optimizer.hyper.lr = 2.5e-3;
                if (optimizer.kind != OptimizerKind::adagrad) return;
                optimizer.hyper.lr = 1e-2;
                optimizer.hyper.eps = 1e-10;
              }};
}

// A value that SGD and Muon have under one key.
template <class T>
Setting in_sgd_or_muon(T& (*member)(OptimizerConfig& config)) {
  const auto value = [member](const Config& config) {
    OptimizerConfig optimizer = config.engine.optimizer;
    return member(optimizer);
  };
  return {
      .type = type_of<T>(),
      .get = [value](const Config& config, int64_t) { return files::json::Value(value(config)); },
      .set =
          [member](Config& config, const files::json::Value& given) {
            assign(member(config.engine.optimizer), given);
          }};
}

Setting momentum() {
  return in_sgd_or_muon<double>(+[](OptimizerConfig& config) -> double& {
    return config.kind == OptimizerKind::muon ? config.matrix_hyper.momentum
                                              : config.hyper.momentum;
  });
}

Setting nesterov() {
  return in_sgd_or_muon<bool>(+[](OptimizerConfig& config) -> bool& {
    return config.kind == OptimizerKind::muon ? config.muon.nesterov : config.nesterov;
  });
}

// settle.h sets the rates of Muon's parts: they follow from lr.
Setting rate_of(optim::HyperParameters OptimizerConfig::*part) {
  Setting setting =
      at(&Config::engine, &EngineConfig::optimizer, part, &optim::HyperParameters::lr);
  setting.set = nullptr;
  return setting;
}

Row newton_schulz_method() {
  Row row = no_effect("ns_method", KeyType::choice,
                      "both are the same iteration; zinc computes it in the standard form");
  row.setting.choices = {"standard", "gram"};
  row.accepted = "standard";
  return row;
}

Rows schedule_free_rows() {
  using optim::ScheduleFreeOptions;
  const auto in_options = [](auto member) {
    return at(&Config::engine, &EngineConfig::optimizer, &OptimizerConfig::schedule_free, member);
  };
  return {
      works("warmup_steps", in_options(&ScheduleFreeOptions::warmup_steps), at_least(0), "updates",
            "in which the rate rises to what lr and scheduler say"),
      works("r", in_options(&ScheduleFreeOptions::r), at_least(0),
            "update t counts t^r times in the average of weights"),
      works("weight_lr_power", in_options(&ScheduleFreeOptions::weight_lr_power), at_least(0),
            "and as often as the largest rate up to it, to this power"),
  };
}

Rows muon_rows() {
  using optim::MuonOptions;
  using optim::MuonScale;
  const auto in_muon = [](auto member) {
    return at(&Config::engine, &EngineConfig::optimizer, &OptimizerConfig::muon, member);
  };
  return {
      works("muon_lr", rate_of(&OptimizerConfig::matrix_hyper), at_least(0),
            "learning rate of matrices")
          .by_default_as("lr, else 0.02"),
      works("adam_lr", rate_of(&OptimizerConfig::hyper), at_least(0), "learning rate of all else")
          .by_default_as("lr, else 0.0003"),
      works("ns_steps", in_muon(&MuonOptions::steps), between(1, 99), "steps",
            "of the Newton-Schulz iteration"),
      works("adjust_lr_fn",
            one_of({MuonScale::original, MuonScale::match_rms}, &Config::engine,
                   &EngineConfig::optimizer, &OptimizerConfig::muon, &MuonOptions::scale),
            "factor of a matrix's step: original: sqrt(max(1, rows / columns)); "
            "match_rms_adamw: 0.2 sqrt(max(rows, columns)), with which rates of AdamW serve"),
  };
}

Rows lamb_rows() {
  using optim::LambOptions;
  const auto in_lamb = [](auto member) {
    return at(&Config::engine, &EngineConfig::optimizer, &OptimizerConfig::lamb, member);
  };
  return {
      works("max_coeff", in_lamb(&LambOptions::most_ratio), positive(),
            "most of the factor norm of weights / norm of step"),
      works("min_coeff", in_lamb(&LambOptions::least_ratio), positive(), "least of it"),
  };
}

Rows adafactor_rows() {
  using optim::AdafactorOptions;
  const auto in_adafactor = [](auto member) {
    return at(&Config::engine, &EngineConfig::optimizer, &OptimizerConfig::adafactor, member);
  };
  return {
      works("eps1", in_adafactor(&AdafactorOptions::least_square), positive(),
            "added to squared gradients; the first eps of transformers"),
      works("eps2", in_adafactor(&AdafactorOptions::least_scale), at_least(0),
            "least scale of a parameter; the second eps of transformers"),
      works("clip_threshold", in_adafactor(&AdafactorOptions::clip_threshold), positive(),
            "most of the root mean square of a parameter's step"),
      works("decay_rate", in_adafactor(&AdafactorOptions::decay_rate),
            "second moments decay by 1 - t^decay_rate at step t; below 0"),
      works("scale_parameter", in_adafactor(&AdafactorOptions::scale_parameter),
            "the learning rate is relative to the root mean square of the parameter"),
      works("relative_step", in_adafactor(&AdafactorOptions::relative_step),
            "the learning rate is multiplied by min(0.01, 1 / sqrt(t)) at step t")
          .by_default_as("true without lr, else false"),
      works("warmup_init", in_adafactor(&AdafactorOptions::warmup_init),
            "with relative_step: by min(1e-6 t, 1 / sqrt(t))"),
  };
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

Rows one_bit_rows() {
  using optim::OneBitOptions;
  const auto in_options = [](auto member) {
    return at(&Config::engine, &EngineConfig::optimizer, &OptimizerConfig::one_bit, member);
  };
  return {
      works("freeze_step", in_options(&OneBitOptions::freeze_step), at_least(1), "updates",
            "with gradients that are summed whole; from then on the second moment stays, and "
            "momenta travel as signs. 15 to 25 % of a run"),
      works("parameter_scales", in_options(&OneBitOptions::parameter_scales),
            "zinc's own: one scale for each parameter, as DeepSpeed has it; false: one for every "
            "1024 elements"),
      no_effect("cuda_aware", KeyType::boolean, "the communicator knows"),
      no_effect("comm_backend_name", KeyType::text, "signs take the way of all collectives"),
  };
}

Rows optimizer_rows() {
  using optim::HyperParameters;
  using enum OptimizerKind;
  const Rows of_averages{
      works("betas", betas(), between(0, 1),
            "decay of the two moments; Lion: of the direction and of its moment; where nothing is "
            "said, Lion: [0.9, 0.99], Muon: [0.9, 0.95]; ScheduleFreeAdamW: the first, above 0, is "
            "the share of the average in the weights at which gradients are taken"),
  };
  const Rows of_squares{
      works("eps", in_hyper(&HyperParameters::eps), at_least(0),
            "added to the root of the squares; Adagrad and Muon: 1e-10 where nothing is said"),
  };
  const Rows of_adam{
      works("amsgrad", in_optimizer(&OptimizerConfig::amsgrad),
            "divides by the largest second moment so far; 4 bytes more per parameter"),
      works("adam_w_mode", decoupled_decay(),
            "with \"type\": \"Adam\", false adds the decay to the gradient"),
  };
  const Rows of_corrected{
      works("bias_correction", in_optimizer(&OptimizerConfig::bias_correction),
            "divides the moments by what their start at 0 takes"),
  };
  const Rows of_momentum{
      works("momentum", momentum(), at_least(0),
            "share of the last update that stays; Muon: below 1, and 0.95 where nothing is said"),
      works("nesterov", nesterov(),
            "looks ahead by the momentum; SGD: needs one, and no dampening; Muon: true where "
            "nothing is said"),
  };
  const Rows params{
      works("lr", in_hyper(&HyperParameters::lr), at_least(0),
            "learning rate that the schedule starts from; where nothing is said, Adagrad: 0.01, "
            "ScheduleFreeAdamW: 0.0025; Muon: of matrices and of all else, but for muon_lr and "
            "adam_lr; Adafactor: 1 where nothing is said, with relative_step")
          .with_flag("--lr", &Overrides::lr),
      works("weight_decay", in_hyper(&HyperParameters::weight_decay), at_least(0),
            "not on biases and norms")
          .with_flag("--weight-decay", &Overrides::weight_decay),
      only("Adam, AdamW, Adam8bit, Lamb, Lion, Muon, OneBitAdam, ScheduleFreeAdamW",
           is_one_of<adam, adamw, adam8bit, lamb, lion, muon, one_bit_adam, schedule_free>,
           of_averages),
      only("Adam, AdamW, Adam8bit, Adagrad, Lamb, Muon, OneBitAdam, ScheduleFreeAdamW",
           is_one_of<adam, adamw, adam8bit, adagrad, lamb, muon, one_bit_adam, schedule_free>,
           of_squares),
      only("Adam, AdamW, Lamb", is_one_of<adam, adamw, lamb>, of_corrected),
      only("Adam, AdamW", is_one_of<adam, adamw>, of_adam),
      only("Adagrad", is_one_of<adagrad>,
           {works("lr_decay", in_optimizer(&OptimizerConfig::lr_decay), at_least(0),
                  "the rate of step t is lr / (1 + (t - 1) lr_decay)")}),
      only("SGD, Muon", is_one_of<sgd, muon>, of_momentum),
      only("SGD", is_one_of<sgd>,
           {works("dampening", in_optimizer(&OptimizerConfig::dampening), between(0, 1),
                  "share of the gradient that the momentum leaves out; below 1")}),
      only("Muon", is_one_of<muon>, muon_rows()),
      only("Lamb", is_one_of<lamb>, lamb_rows()),
      only("Adafactor", is_one_of<adafactor>, adafactor_rows()),
      only("ScheduleFreeAdamW", is_one_of<schedule_free>, schedule_free_rows()),
      only("OneBitAdam", is_one_of<one_bit_adam>, one_bit_rows()),
      refused("eps_inside_sqrt", "eps is added to the root of the squares"),
      refused("beta1", "give betas; Adafactor has no first moment here"),
      newton_schulz_method(),
      refused("per_head_muon", "Muon takes a matrix of all heads as one"),
      no_effect("torch_adam", KeyType::boolean, "there is one implementation"),
      no_effect("fused", KeyType::boolean, "the update is one pass"),
      no_effect("foreach", KeyType::boolean, "the update is one pass"),
      refused("max_grad_norm", "use gradient_clipping"),
  };
  return block(
      "optimizer", "absent: AdamW with its defaults",
      {works("type", optimizer_type(),
             "in upper or lower case; Adam is AdamW unless adam_w_mode is false; Adam8bit: "
             "AdamW with moments in 8 bits"),
       no_effect("legacy_fusion", KeyType::boolean, "there is one implementation"),
       block("params", "constants of the update rule", params)});
}

}  // namespace zinc::train
