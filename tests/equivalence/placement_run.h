// tests/equivalence/placement_run.h: a short training whose every value is looked at.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/states_of.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero::test {

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> values;  // weights, states, and gradients of the last step
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct Case {
  int world = 1;
  int64_t accumulation = 1;
  DType dtype = DType::f32;
  ReduceSchedule schedule = ReduceSchedule::boundary;
  Determinism determinism = Determinism::run;
  Family family = Family::gpt2;
  optim::Moments moments = optim::Moments::f32;
  bool fp8 = false;
  bool narrow_logits = false;
  double dropout = 0.1;
  std::optional<DType> wire{};  // dtype of gradients on the wire
  optim::OptimizerKind rule = optim::OptimizerKind::adamw;
  bool narrow_weights = false;  // bf16 without master weights
  bool unequal = false;         // sequences of a micro-batch may be longer than those of another

  int64_t tokens_of(int64_t index) const { return unequal ? 9 - 3 * (index % 3) / 2 : 9; }
};

inline EngineConfig config_of(const Case& c) {
  EngineConfig config = training_config(c.accumulation, c.dtype, c.schedule);
  config.determinism = c.determinism;
  config.optimizer.moments = c.moments;
  config.optimizer.kind = c.rule;
  config.optimizer.one_bit.freeze_step = 1;
  config.optimizer.narrow_weights = c.narrow_weights;
  config.optimizer.matrix_hyper = {.lr = 1e-2, .weight_decay = 0.1, .momentum = 0.9};
  config.fp8 = c.fp8;
  config.narrow_logits = c.narrow_logits;
  config.gradient.communication_dtype = c.wire;
  return config;
}

inline constexpr OffloadDevice kDevices[] = {OffloadDevice::none, OffloadDevice::cpu,
                                             OffloadDevice::nvme};

// Everything moves: buffers smaller than a group's shard, nothing kept in host memory.
inline EngineConfig placed(EngineConfig config, OffloadDevice optimizer, OffloadDevice parameters,
                           const offload::SwapFolder& folder) {
  config.zero.stage = 3;
  config.gradient.reduce_schedule.reset();
  config.zero.sub_group_size = 2048;
  config.zero.offload_optimizer = {.device = optimizer,
                                   .nvme_path = folder.path(),
                                   .pipeline_read = true,
                                   .pipeline_write = true};
  config.zero.offload_param = {.device = parameters,
                               .nvme_path = folder.path(),
                               .buffer_count = 2,
                               .buffer_size = 2048,
                               .max_in_cpu = 0};
  config.aio.block_size = 4096;
  return config;
}

struct RunOptions {
  Device device = kCpu;
  ContextOptions::Execution execution = ContextOptions::Execution::concurrent;
  uint64_t shuffle_seed = 0;
};

inline Outcome run(const Case& c, const EngineConfig& config, int steps,
                   const RunOptions& options = {}) {
  Outcome outcome;
  comm::ConnectOptions connect{.device = options.device, .seed = 5, .num_threads = 1};
  connect.execution = options.execution;
  connect.shuffle_seed = options.shuffle_seed;
  connect.memory.poison = true;  // memory that is used too early or too late shows as NaN
  comm::run_local_ranks(c.world, connect, [&](comm::World& world) {
    world.communicator().set_deadline(std::chrono::minutes(1));
    const std::unique_ptr<nn::Model> made = make_tiny_model(c.family, c.dropout);
    nn::Model& model = *made;
    // A parameter from the middle of the model.
    const auto parameters = model.named_parameters();
    const std::string sample = parameters[parameters.size() / 2].first;
    Engine engine(model, config, world);
    const auto take = [&](const Tensor& tensor) {
      const auto values = tensor.to_vector<float>();
      if (world.rank() != 0) return;
      outcome.values.insert(outcome.values.end(), values.begin(), values.end());
    };
    for (int step = 0; step < steps; ++step) {
      const int64_t together = config.batches_together();
      for (int64_t micro = 0; micro < c.accumulation; micro += together) {
        std::vector<nn::Batch> batches;
        for (int64_t i = 0; i < together; ++i) {
          const int64_t index = step * c.accumulation + micro + i;
          const int64_t global = index * world.size() + world.rank();
          batches.push_back(make_batch(c.family, global, c.tokens_of(global)));
        }
        engine.run_passes(batches);
        const bool has_gradient = !config.sends_signs();  // signs alone have travelled
        if (has_gradient && step + 1 == steps && micro + together == c.accumulation) {
          take(engine.gradient(sample));
        }
        const StepResult result = engine.step();
        if (world.rank() != 0 || result.outcome == StepOutcome::accumulated) continue;
        const bool skipped = result.outcome == StepOutcome::skipped_overflow;
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(skipped ? -1.0 : result.gradient_norm);
      }
    }
    for (const auto& [name, parameter] : model.named_parameters()) {
      take(engine.parameter(name));
      for (const auto& [kind, state] : states_of(engine, name)) take(state);
    }
  });
  return outcome;
}

// Bytes that this process has given to disks so far; -1: not known.
inline int64_t bytes_of_process(const char* wanted) {
  std::ifstream in("/proc/self/io");
  std::string key;
  for (int64_t value = 0; in >> key >> value;) {
    if (key == wanted) return value;
  }
  return -1;
}

// `config` with states on NVMe, and parameters on each device in turn, against itself on stage 0:
// both schedules, with tiles read ahead and written behind and without, and shuffled execution.
inline void expect_bits_of_stage_0(const Case& c, EngineConfig config, int steps) {
  const offload::SwapFolder folder;
  config.zero.stage = 0;
  const Outcome reference = run(c, config, steps);
  for (const OffloadDevice parameters : kDevices) {
    EngineConfig changed = placed(config, OffloadDevice::nvme, parameters, folder);
    for (const bool pipeline : {true, false}) {
      changed.zero.offload_optimizer.pipeline_read = pipeline;
      changed.zero.offload_optimizer.pipeline_write = pipeline;
      changed.pass_order = pipeline ? PassOrder::vertical : PassOrder::horizontal;
      EXPECT_TRUE(run(c, changed, steps) == reference)
          << "parameters on " << name_of(parameters) << ", pipeline " << pipeline;
    }
    changed.zero.overlap_comm = true;
    for (const uint64_t seed : {1, 2}) {
      EXPECT_TRUE(run(c, changed, steps,
                      {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed}) ==
                  reference)
          << "parameters on " << name_of(parameters) << ", seed " << seed;
    }
  }
}

}  // namespace zinc::zero::test
