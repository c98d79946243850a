#include "zero/engine_setup.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "core/error.h"
#include "optim/factory.h"
#include "zero/agreement.h"
#include "zero/gradient_policy.h"

namespace zinc::zero {

int64_t num_blocks(nn::Model& model) {
  const auto modules = model.modules();
  return std::count_if(modules.begin(), modules.end(),
                       [](const nn::Module* module) { return module->is_shard_unit(); });
}

namespace {

int64_t recompute_every(nn::Model& model, const RecomputeConfig& recompute) {
  if (recompute.num_checkpoints == 0) return recompute.every_blocks;
  const int64_t blocks = num_blocks(model);
  return std::max<int64_t>(1, (blocks + recompute.num_checkpoints - 1) / recompute.num_checkpoints);
}

}  // namespace

EngineConfig validated(EngineConfig config, const nn::Model& model) {
  validate(config);
  if (config.batch.sequence == 0) {
    config.batch.sequence = std::max<int64_t>(1, model.max_sequence());
  }
  return config;
}

void require_shape(const nn::Batch& batch, const EngineConfig& config) {
  require(batch.input_ids.dim(0) == config.batch.micro_batch, "engine.forward: the batch has ",
          batch.input_ids.dim(0), " sequences, but train_micro_batch_size_per_gpu is ",
          config.batch.micro_batch, "; pad it, or change the configuration");
  require(
      config.loss_divisor() == 1.0 || batch.input_ids.dim(1) <= config.batch.sequence,
      "engine.forward: the batch has ", batch.input_ids.dim(1),
      " positions per sequence, but the scale of an fp16 loss is measured by ",
      config.batch.sequence,
      "; set EngineConfig::batch.sequence (default: the model's max_sequence()) to the longest");
}

comm::World& checked(comm::World& world, const EngineConfig& config) {
  if (config.determinism == Determinism::world &&
      !std::has_single_bit(static_cast<unsigned>(world.size()))) {
    throw ConfigError(
        concat("\"determinism\": \"world\" needs a power of two of ranks, not ", world.size()));
  }
  if (config.cuda_graph && !world.context().device().is_cuda()) {
    throw ConfigError("\"cuda_graph\": true needs a GPU: leave it out, or take --device cuda");
  }
  if (config.cuda_graph && config.zero.stage == 3 && world.size() > 1 &&
      !world.communicator().follows_streams()) {
    throw ConfigError(
        concat("\"cuda_graph\": true on stage 3 needs NCCL, and a GPU for every rank: ranks gather "
               "inside a pass, and collectives of ",
               world.communicator().backend(),
               " go through the host, which no graph can hold; or take stage 0, 1 or 2"));
  }
  return world;
}

void require_weights_at_rest(bool updating) {
  require(!updating,
          "engine: weights are under update since run_passes(); call step() first, or forward() "
          "and backward() instead");
}

void require_sums_without_sync(const EngineConfig& config) {
  require(config.zero.stage <= 1, "NoSync: gradients are sharded on stage ", config.zero.stage,
          ", so every backward() has to reduce; use stage 0 or 1");
  const GradientPolicy policy = GradientPolicy::choose(config);
  require(policy.schedule == ReduceSchedule::boundary,
          "NoSync: needs \"reduce_schedule\": \"boundary\"");
  require(policy.several || !is_16bit_float(policy.kept),
          "NoSync: with one micro-batch per step gradients are kept in ", policy.kept,
          "; set \"grad_accum_dtype\": \"fp32\" to add them up");
}

double wire_divisor(const GradientConfig& gradient, int world) {
  if (gradient.reduce_algorithm != ReduceAlgorithm::native) return 1.0;
  return gradient.prescale ? static_cast<double>(world) : gradient.predivide_factor;
}

double gradient_divisor(const EngineConfig& config, int world) {
  return wire_divisor(config.gradient, world) * config.loss_divisor();
}

std::unique_ptr<optim::Optimizer> choose_optimizer(const EngineConfig& config,
                                                   EngineOptions& options) {
  if (options.optimizer != nullptr) {
    if (config.zero.stage >= 1 && !config.zero.allow_untested_optimizer) {
      throw ConfigError(concat("a client's own optimizer (", options.optimizer->name(),
                               ") on ZeRO stage ", config.zero.stage,
                               " needs \"zero_allow_untested_optimizer\": true"));
    }
    if (config.zero.offload_optimizer.device != OffloadDevice::none &&
        config.zero.force_cpu_optimizer) {
      throw ConfigError(concat("a client's own optimizer (", options.optimizer->name(),
                               ") with offload_optimizer needs \"zero_force_ds_cpu_optimizer\": "
                               "false"));
    }
    return std::move(options.optimizer);
  }
  return optim::make_optimizer(config.optimizer);
}

std::unique_ptr<RecordedPasses> make_recorded_passes(const EngineConfig& config, bool dynamic_model,
                                                     comm::World& world, GradientStore& gradients) {
  if (!config.cuda_graph) return nullptr;
  if (dynamic_model) {
    throw ConfigError(
        "\"cuda_graph\": true does not work with a dynamic model: its code would not run again");
  }
  return std::make_unique<RecordedPasses>(world.context(), gradients, world.communicator());
}

GraphUse graph_use(const RecordedPasses* passes) {
  if (passes == nullptr) return {};
  return {.recorded = passes->num_recorded(),
          .launched = passes->num_launched(),
          .step_parts = passes->num_step_parts_launched()};
}

int state_index(const optim::Optimizer& optimizer, std::string_view state) {
  std::string known;
  for (int i = 0; i < optimizer.num_states(); ++i) {
    if (optimizer.state_name(i) == state) return i;
    known += concat(" ", optimizer.state_name(i));
  }
  throw InvalidArgument(concat("optimizer ", optimizer.name(), " has no state called '", state,
                               "'; it has", known.empty() ? " none" : known));
}

void require_progress(int64_t skipped, int64_t allowed, std::string_view culprit) {
  if (skipped < allowed) return;
  throw NumericsError(concat("the gradient was not finite for ", skipped,
                             " steps in a row, last in ", culprit,
                             "; lower the learning rate, or check data and weights for NaN"));
}

bool agrees(comm::World& world, uint64_t schedule, uint64_t parameter_groups) {
  require_agreement(world,
                    std::array{Fingerprint{"schedule or layout", schedule},
                               Fingerprint{"split into parameter groups", parameter_groups}});
  return true;
}

std::vector<ShardGroup> prepare_groups(nn::Model& model, const EngineConfig& config, int world) {
  model.set_dtype(config.precision.dtype);
  model.set_recompute_every(recompute_every(model, config.recompute));
  if (config.pass_order == PassOrder::vertical && model.num_stages() == 1) {
    throw ConfigError(concat("\"schedule\": \"vertical\" needs a model that says its stages, and ",
                             model.architecture(), " does not: override num_stages() and stage()"));
  }
  return make_shard_groups(model, world, config.zero.param_persistence_threshold);
}

std::unique_ptr<Lockstep> make_lockstep(bool needed, const std::vector<ShardGroup>& groups,
                                        comm::World& world) {
  if (!needed || world.size() == 1) return nullptr;
  return std::make_unique<Lockstep>(groups, world);
}

std::optional<int64_t> run_length(const EngineOptions& options) {
  if (options.total_steps <= 0) return std::nullopt;
  return options.total_steps;
}

Tensor host_tensor(const nn::Parameter& parameter) {
  return Tensor::empty(parameter.shape(),
                       parameter.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

}  // namespace zinc::zero
