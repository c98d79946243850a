// tests/zero/tiny_training.h: a configuration to train tiny models with, what is left of a
// training, and the parts of a model written by hand that no test is about.
#pragma once

#include <string>
#include <vector>

#include "nn/model.h"
#include "zero/engine.h"

namespace zinc::zero::test {

// f16: the first steps of a tiny GPT-2 overflow, so that skipped steps are met too. Small
// parameters persist, nothing else stays gathered.
inline EngineConfig training_config(int64_t accumulation, DType dtype, ReduceSchedule schedule) {
  EngineConfig config;
  config.batch.micro_batch = 2;
  config.batch.accumulation = accumulation;
  config.precision.dtype = dtype;
  config.precision.check_overflow = dtype != DType::f32;
  if (dtype == DType::f16)
    config.precision.loss_scale = {.dynamic = true, .initial_scale_power = 21};
  config.gradient.clipping = 0.5;
  if (accumulation > 1) config.gradient.reduce_schedule = schedule;
  config.optimizer.hyper = {.lr = 1e-2, .weight_decay = 0.1};
  config.zero.param_persistence_threshold = 100;
  config.zero.max_reuse_distance = 0;
  return config;
}

// All weights, in the order of their names in the model. Collective.
inline std::vector<float> weights_of(Engine& engine) {
  std::vector<float> weights;
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    const auto values = engine.parameter(name).to_vector<float>();
    weights.insert(weights.end(), values.begin(), values.end());
  }
  return weights;
}

// All weights, then AdamW's moments. Collective.
inline std::vector<float> weights_and_states_of(Engine& engine) {
  std::vector<float> all = weights_of(engine);
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    for (const std::string& state : engine.state().kinds) {
      if (state == kWeightsKind) continue;
      const auto values = engine.optimizer_state(name, state).to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

// A model with a loss and nothing else. Its batches are one_target().
struct LossOnly : nn::Model {
  std::string_view model_type() const override { return "loss_only"; }
  int64_t max_sequence() const override { return 4; }
};

inline nn::Batch one_target() {
  return {.tensors = {{"input_ids", Tensor::zeros({1, 1}, DType::i32)},
                      {"labels", Tensor::zeros({1, 1}, DType::i32)}},
          .num_targets = 1,
          .num_tokens = 1,
          .global_micro_batch = 0};
}

}  // namespace zinc::zero::test
