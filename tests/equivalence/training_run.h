// tests/equivalence/training_run.h: a short training of a tiny model, and everything that must not
// depend on how memory is used.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "nn/lora.h"
#include "nn/quantize.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero::training {

using test::Family;

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> weights;  // and optimizer states
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct Case {
  int world = 1;
  int64_t accumulation = 1;
  DType dtype = DType::f32;
  ReduceSchedule schedule = ReduceSchedule::boundary;  // with several micro-batches
  Family family = Family::gpt2;
  bool lora = false;  // adapters alone are trained
  bool dora = false;  // the lengths of rows with them
  std::string lora_target = "all-linear";
  std::optional<BlockFormat> quantize{};  // the base, under adapters
  std::optional<DType> wire{};            // dtype of gradients on the wire
};

inline std::unique_ptr<nn::Model> make_model(const Case& c) {
  std::unique_ptr<nn::Model> model = test::make_tiny_model(c.family);
  if (c.lora) {
    nn::add_lora(
        *model,
        {.rank = 3, .dropout = 0.2, .dora = c.dora, .targets = {c.lora_target, "all-linear"}});
    if (c.quantize) nn::quantize_base(*model, *c.quantize);
  }
  return model;
}

inline std::string describe(const Case& c) {
  return str("world ", c.world, " accumulation ", c.accumulation, " ", c.dtype, " ",
             name_of(c.schedule), " ", test::name_of(c.family), c.lora ? " lora" : "",
             c.wire ? str(" wire ", *c.wire) : "");
}

inline EngineConfig config_of(const Case& c) {
  EngineConfig config = test::training_config(c.accumulation, c.dtype, c.schedule);
  config.gradient.communication_dtype = c.wire;
  return config;
}

struct RunOptions {
  ContextOptions::Execution execution = ContextOptions::Execution::concurrent;
  uint64_t shuffle_seed = 0;
  bool delays = false;  // every rank lags at another place in every step
  // Makes the communicator that each rank uses around its own; may be empty.
  std::function<std::unique_ptr<comm::Communicator>(std::unique_ptr<comm::Communicator>)> decorate;
};

// Holds up a stream, or the thread that issues work, for a time that depends on rank and step.
inline void lag(comm::World& world, StreamRole role, int64_t step) {
  const auto time = std::chrono::microseconds(300 * ((world.rank() + step) % 3));
  world.context().stream(role).submit("lag", [time] { std::this_thread::sleep_for(time); });
}

// The outcome on this rank of a training with `config`. Collective.
inline Outcome train(const Case& c, const EngineConfig& config, int steps, comm::World& world,
                     bool delays = false) {
  Outcome outcome;
  const std::unique_ptr<nn::Model> model = make_model(c);
  Engine engine(*model, config, world);
  const auto maybe_lag = [&](StreamRole role, int64_t step) {
    if (delays) lag(world, role, step);
  };
  for (int step = 0; step < steps; ++step) {
    StepResult result;
    for (int64_t micro = 0; micro < c.accumulation; ++micro) {
      const int64_t index = (step * c.accumulation + micro) * world.size() + world.rank();
      maybe_lag(StreamRole::gather, step);
      const Loss loss = engine.forward(test::make_batch(c.family, index));
      maybe_lag(StreamRole::compute, step + 1);
      maybe_lag(StreamRole::reduce, step + micro);
      engine.backward(loss);
      maybe_lag(StreamRole::compute, step + 2);
      result = engine.step();
    }
    outcome.losses.push_back(result.loss);
    // A skipped step's norm is not a number, which equals nothing.
    const bool skipped = result.outcome == StepOutcome::skipped_overflow;
    outcome.norms.push_back(skipped ? -1.0 : result.gradient_norm);
  }
  for (const auto& [name, parameter] : model->named_parameters()) {
    const auto take = [&](const Tensor& tensor) {
      const auto values = tensor.to_vector<float>();
      outcome.weights.insert(outcome.weights.end(), values.begin(), values.end());
    };
    take(engine.parameter(name));
    if (parameter->requires_grad()) take(engine.optimizer_state(name, "exp_avg"));
  }
  return outcome;
}

// The outcome on rank 0; ranks are threads.
inline Outcome run(const Case& c, const EngineConfig& config, int steps,
                   const RunOptions& options = {}) {
  Outcome outcome;
  comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
  connect.execution = options.execution;
  connect.shuffle_seed = options.shuffle_seed;
  std::vector<std::unique_ptr<comm::Communicator>> ranks = comm::make_local_group(c.world);
  if (options.decorate) {
    for (auto& rank : ranks) rank = options.decorate(std::move(rank));
  }
  comm::run_ranks(std::move(ranks), connect, [&](comm::World& world) {
    world.communicator().set_deadline(std::chrono::minutes(1));  // a hang is an error
    Outcome mine = train(c, config, steps, world, options.delays);
    if (world.is_main()) outcome = std::move(mine);
  });
  return outcome;
}

}  // namespace zinc::zero::training
