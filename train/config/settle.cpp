#include "train/config/settle.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "nn/attention/sparse_attention.h"
#include "optim/factory.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"
#include "train/config/key_rules.h"
#include "train/config/row.h"

namespace zinc::train {
namespace {

constexpr const char* kCheckpoints = "activation_checkpointing.number_checkpoints";

// zinc.mesh and DeepSpeed's names for it.
void settle_mesh(const Reading& reading) {
  comm::Mesh& mesh = reading.config.mesh;
  try {
    mesh.require_fit(reading.world_size);
  } catch (const ConfigError& error) {
    reading.findings.problem(error.what());
    mesh = {};
  }
  reading.config.engine.pipeline.ranks = mesh.pipe;
}

// train_batch_size = micro-batch x accumulation x data ranks; any two give the third.
void settle_batches(const Reading& reading) {
  const Overrides& flags = reading.flags;
  for (const auto& [flag, option] :
       {std::pair(flags.micro_batch, "--batch"), std::pair(flags.accumulation, "--grad-accum")}) {
    if (flag && (*flag < 1 || *flag > kLargestBatch)) {
      reading.findings.problem(
          str(option, " must be between 1 and ", kLargestBatch, ", not ", *flag));
      return;
    }
  }
  const files::json::Value* given_total = reading.find("train_batch_size");
  const bool has_micro =
      flags.micro_batch || reading.find("train_micro_batch_size_per_gpu") != nullptr;
  const bool has_steps =
      flags.accumulation || reading.find("gradient_accumulation_steps") != nullptr;
  if (given_total == nullptr && !has_micro) {
    reading.findings.problem(
        "the batch size is open: give train_micro_batch_size_per_gpu (or --batch) or "
        "train_batch_size");
    return;
  }
  if (given_total == nullptr) return;
  const int64_t total = given_total->as_int64();
  zero::BatchConfig& batch = reading.config.engine.batch;
  const int64_t ranks = reading.config.data_ranks(reading.world_size);
  if (!has_micro) {
    batch.micro_batch = total / ranks / batch.accumulation;
  } else if (!has_steps) {
    batch.accumulation = total / batch.micro_batch / ranks;
  }
  if (batch.global_batch(ranks) != total) {
    reading.findings.problem(str("train_batch_size ", total,
                                 " is not train_micro_batch_size_per_gpu x "
                                 "gradient_accumulation_steps x ranks = ",
                                 batch.micro_batch, " x ", batch.accumulation, " x ", ranks));
  }
}

// fp16.enabled, bf16.enabled and --dtype say it together.
void settle_dtype(const Reading& reading) {
  const std::optional<DType>& flag = reading.flags.dtype;
  std::optional<DType> fixed;
  for (const auto& [dtype, block] :
       {std::pair(DType::f16, "fp16"), std::pair(DType::bf16, "bf16")}) {
    const files::json::Value* enabled = reading.find(str(block, ".enabled"));
    if (enabled == nullptr) continue;
    if (!enabled->as_bool()) {
      if (flag == dtype) {
        reading.findings.problem(str("--dtype ", dtype, " contradicts ", block,
                                     ".enabled false of the file; set it to \"auto\""));
      }
      continue;
    }
    if (!fixed && flag && *flag != dtype) {
      reading.findings.problem(str("--dtype ", *flag, " contradicts ", block,
                                   ".enabled of the file; change one of them, or set it to "
                                   "\"auto\""));
    }
    fixed = dtype;
  }
  reading.config.engine.precision.dtype = fixed ? *fixed : flag.value_or(DType::f32);
}

// Adafactor has a learning rate of its own, unless one is given.
void settle_adafactor(const Reading& reading) {
  optim::OptimizerConfig& optimizer = reading.config.engine.optimizer;
  const optim::ScheduleKind schedule = reading.config.engine.schedule.kind;
  if (reading.flags.lr || reading.find("optimizer.params.lr") != nullptr) return;
  bool& is_relative = optimizer.adafactor.relative_step;
  if (reading.find("optimizer.params.relative_step") == nullptr) is_relative = true;
  if (!is_relative) return;
  optimizer.hyper.lr = 1.0;
  if (schedule == optim::ScheduleKind::constant) return;
  reading.findings.problem(str(
      "scheduler.type \"", optim::name_of(schedule), "\": without optimizer.params.lr, the ",
      "learning rate of Adafactor follows from the step alone; give lr, or leave scheduler out"));
}

// "Adam" is AdamW unless adam_w_mode is false. Muon's two parts share what is said once.
void settle_optimizer(const Reading& reading) {
  optim::OptimizerConfig& optimizer = reading.config.engine.optimizer;
  const files::json::Value* decoupled = reading.find("optimizer.params.adam_w_mode");
  if (optimizer.kind == optim::OptimizerKind::adam &&
      (decoupled == nullptr || decoupled->as_bool())) {
    optimizer.kind = optim::OptimizerKind::adamw;
  }
  if (optimizer.kind == optim::OptimizerKind::adafactor) settle_adafactor(reading);
  if (optimizer.kind != optim::OptimizerKind::muon) return;
  optim::HyperParameters& matrices = optimizer.matrix_hyper;
  matrices.weight_decay = optimizer.hyper.weight_decay;
  if (reading.flags.lr || reading.find("optimizer.params.lr") != nullptr) {
    matrices.lr = optimizer.hyper.lr;
  }
  if (const files::json::Value* lr = reading.find("optimizer.params.muon_lr")) {
    matrices.lr = lr->as_double();
  }
  if (const files::json::Value* lr = reading.find("optimizer.params.adam_lr")) {
    optimizer.hyper.lr = lr->as_double();
  }
}

// A flag that the scheduler does not look at would be lost without a word.
void refuse_ignored_flags(const Reading& reading) {
  using Kind = optim::ScheduleKind;
  const optim::ScheduleConfig& schedule = reading.config.engine.schedule;
  const Overrides& flags = reading.flags;
  const auto ignored = [&](std::string_view flag, const auto& value, std::string_view why) {
    reading.findings.problem(str(flag, " ", value, " has no effect with scheduler.type \"",
                                 optim::name_of(schedule.kind), "\": ", why));
  };
  const bool cycles = schedule.kind == Kind::one_cycle;
  const bool tests_range = schedule.kind == Kind::lr_range_test;
  if (flags.warmup_steps && (schedule.kind == Kind::step_lr || cycles || tests_range)) {
    ignored("--warmup-steps", *flags.warmup_steps, "it has no warm-up; leave the flag out");
  }
  if (!flags.lr) return;
  if (cycles) {
    ignored("--lr", *flags.lr, "set scheduler.params.cycle_min_lr and cycle_max_lr");
  } else if (tests_range) {
    ignored("--lr", *flags.lr, "set scheduler.params.lr_range_test_min_lr");
  } else if (schedule.kind == Kind::warmup_lr || schedule.kind == Kind::warmup_decay_lr) {
    const double fallback = schedule.kind == Kind::warmup_lr ? *flags.lr : optim::kWarmupDecayMaxLr;
    const double top = schedule.warmup_max_lr.value_or(fallback);
    if (top == *flags.lr) return;
    ignored("--lr", *flags.lr,
            str("scheduler.params.warmup_max_lr is ", top, "; set it to \"auto\""));
  }
}

void tell_of_a_pipeline(const Reading& reading) {
  const zero::EngineConfig& engine = reading.config.engine;
  const int64_t ranks = engine.pipeline.ranks, micro_batches = engine.batch.accumulation;
  if (micro_batches >= ranks) return;
  reading.findings.notice(str("gradient_accumulation_steps ", micro_batches, " in a pipeline of ",
                              ranks, " ranks: each of them works for ", micro_batches, " of ",
                              micro_batches + ranks - 1,
                              " turns; take several times as many micro-batches as ranks"));
}

void tell_what_has_no_effect(const Reading& reading) {
  const zero::RecomputeConfig& recompute = reading.config.engine.recompute;
  const bool on_nvme = recompute.inputs_on() == zero::OffloadDevice::nvme;
  const bool may_recompute =
      recompute.is_on() ||
      std::ranges::find(reading.config.open, kCheckpoints) != reading.config.open.end();
  const auto needs_recomputation = [&](bool asked, std::string_view key) {
    if (!asked || may_recompute) return;
    reading.findings.notice(
        str(key,
            " has no effect without activation_checkpointing.number_checkpoints or "
            "zinc.recompute_every_blocks"));
  };
  needs_recomputation(recompute.cpu_checkpointing, "activation_checkpointing.cpu_checkpointing");
  needs_recomputation(recompute.contiguous_memory_optimization && !on_nvme,
                      "activation_checkpointing.contiguous_memory_optimization");
  needs_recomputation(recompute.partition_activations,
                      "activation_checkpointing.partition_activations");
  if (recompute.partition_activations && reading.config.mesh.tensor == 1) {
    reading.findings.notice(
        "activation_checkpointing.partition_activations has no effect without zinc.mesh.tensor");
  }
  if (reading.config.engine.tensor_sequence_parallel && reading.config.mesh.tensor == 1) {
    reading.findings.notice("zinc.tensor_sequence_parallel has no effect without zinc.mesh.tensor");
  }
  needs_recomputation(recompute.offload.device != zero::OffloadDevice::none,
                      "zinc.activation_offload");
  if (on_nvme && recompute.contiguous_memory_optimization) {
    reading.findings.notice(
        "activation_checkpointing.contiguous_memory_optimization has nothing to do with "
        "zinc.activation_offload to nvme: its buffers and its space are made once and kept");
  }
  if (!reading.config.engine.verify_swap) {
    reading.findings.notice(
        "zinc.verify_swap is false: bytes that a disk gives back changed are not noticed");
  }
}

}  // namespace

void settle(const Reading& reading) {
  report_key_rules(reading);
  settle_mesh(reading);
  settle_batches(reading);
  settle_dtype(reading);
  settle_optimizer(reading);
  refuse_ignored_flags(reading);
  tell_what_has_no_effect(reading);
  tell_of_a_pipeline(reading);
}

// Problems stand at their key where the file has it, or else at the block.
void check_sparse_attention(const Reading& reading) {
  const std::optional<nn::SparsityConfig>& config = reading.config.engine.sparse_attention;
  if (!config) return;
  const auto problem = [&](std::string_view key, const std::string& text) {
    const files::json::Value* at = reading.find(key);
    if (at == nullptr) at = reading.find("sparse_attention");
    at != nullptr ? reading.findings.problem(*at, text) : reading.findings.problem(text);
  };
  const std::vector<nn::SparsityProblem> problems = nn::problems_of(*config);
  for (const nn::SparsityProblem& one : problems) {
    const std::string path = str("sparse_attention.", one.key);
    problem(path, str(path, ": ", one.text));
  }
  if (!problems.empty() || !reading.flags.sequence) return;
  try {
    nn::make_layout(*config, {.tokens = *reading.flags.sequence});
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    problem(text.substr(0, text.find(':')), text);
  }
}

void check_together(const Reading& reading) {
  const zero::EngineConfig& engine = reading.config.engine;
  check_sparse_attention(reading);
  const auto attempt = [&](const auto& work) {
    try {
      work();
    } catch (const ConfigError& error) {
      reading.findings.problem(error.what());
    } catch (const InvalidArgument& error) {
      reading.findings.problem(error.what());
    }
  };
  for (std::string& problem : zero::value_problems(engine)) {
    reading.findings.problem(std::move(problem));
  }
  report_config_rules(reading);
  attempt([&] { optim::make_optimizer(engine.optimizer); });
  attempt([&] { optim::LossScaler{engine.precision.loss_scale}; });
  // Without --steps a total that is left open is no problem yet.
  const int64_t updates = reading.flags.total_steps.value_or(1);
  attempt([&] { optim::Schedule(engine.schedule, engine.optimizer, updates); });
}

}  // namespace zinc::train
