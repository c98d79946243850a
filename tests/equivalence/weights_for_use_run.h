// tests/equivalence/weights_for_use_run.h: a short training with a rule that trains with other
// weights than those that the model is used with, with uses between its passes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/equivalence/training_run.h"
#include "tests/offload/swap_folder.h"
#include "zero/engine.h"

namespace zinc::zero::weights_for_use {

using test::Family;
using test::make_batch;

inline constexpr int kWorld = 2;
inline constexpr int kSteps = 3;
inline constexpr double kBeta1 = 0.9;

struct WhereKept {
  std::string name;
  int stage = 0;
  std::function<void(EngineConfig& config, const std::string& folder)> change{};
};
inline void PrintTo(const WhereKept& place, std::ostream* out) { *out << place.name; }

inline OffloadConfig on_nvme(const std::string& folder) {
  return {.device = OffloadDevice::nvme, .nvme_path = folder, .pipeline_read = true};
}

inline std::vector<WhereKept> places() {
  const auto in_host = [](double ratio) {
    return [ratio](EngineConfig& config, const std::string&) {
      config.zero.offload_optimizer = {.device = OffloadDevice::cpu, .ratio = ratio};
    };
  };
  return {
      {"Stage0", 0},
      {"Stage1", 1},
      {"Stage2", 2},
      {"Stage3", 3},
      {"InHostMemory", 2, in_host(1.0)},
      {"Split", 2, in_host(0.4)},
      {"Stage3InHostMemory", 3, in_host(1.0)},
      {"UpdatedOnTheDevice", 2,
       [=](EngineConfig& config, const std::string& folder) {
         in_host(1.0)(config, folder);
         config.offload_step = OffloadStep::device;
       }},
      {"InSwapSpace", 2,
       [](EngineConfig& config, const std::string& folder) {
         config.zero.offload_optimizer = on_nvme(folder);
       }},
      {"ParametersInHostMemory", 3,
       [=](EngineConfig& config, const std::string& folder) {
         in_host(1.0)(config, folder);
         config.zero.offload_param.device = OffloadDevice::cpu;
       }},
      {"AllInSwapSpace", 3,
       [](EngineConfig& config, const std::string& folder) {
         config.zero.offload_optimizer = on_nvme(folder);
         config.zero.offload_param = on_nvme(folder);
         config.zero.offload_param.buffer_size = 20'000;
       }},
  };
}

inline EngineConfig config_of(DType dtype) {
  EngineConfig config = test::training_config(2, dtype, ReduceSchedule::micro_step);
  config.optimizer = {.kind = optim::OptimizerKind::schedule_free,
                      .hyper = {.lr = 0.02, .weight_decay = 0.1, .beta1 = kBeta1},
                      .schedule_free = {.warmup_steps = 2}};
  config.zero.sub_group_size = 5000;  // cuts parameters
  return config;
}

using Values = std::map<std::string, std::vector<float>>;

// What a use gives, on rank 0.
struct Use {
  double loss = 0.0;
  Values weights;
  friend bool operator==(const Use&, const Use&) = default;
};

struct Trained {
  std::vector<double> values;  // losses, then weights and states
  std::vector<Use> uses;       // ahead of each step and behind the last, where there are any
  Use wanted;                  // the last of them, from weights and states
  Values at_end;               // the weights that the model has behind its engine; empty: none
  Values wanted_at_end;        // `wanted` in the dtype of the model
};

// All weights for use, whole. The pieces that this rank hands out are of the same values.
inline Values read_all(Engine& engine, comm::World& world) {
  Values values;
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    values[name] = engine.evaluated_parameter(name).to_vector<float>();
  }
  engine.read_own(Own::weights, [&](const OwnPiece& piece) {
    const std::vector<float>& whole = values.at(piece.name);
    for (int64_t i = 0; i < piece.values.numel(); ++i) {
      ASSERT_EQ(piece.values.data_as<float>()[i], whole[static_cast<size_t>(piece.begin + i)])
          << piece.name << " on rank " << world.rank();
    }
  });
  return values;
}

inline double loss_of(Engine& engine) {
  double sum = 0.0;
  for (const Evaluation& part : gather(engine, engine.evaluate(make_batch(Family::gpt2, 77)))) {
    sum += part.loss_sum;
  }
  return sum;
}

// From the package: y.lerp_(z, 1 - 1 / beta1), in the operations of kernels/update_table.h.
inline std::vector<float> average_of(const std::vector<float>& y, const std::vector<float>& z) {
  std::vector<float> x;
  for (size_t i = 0; i < y.size(); ++i) {
    x.push_back(std::fma(static_cast<float>(1.0 - 1.0 / kBeta1), z[i] - y[i], y[i]));
  }
  return x;
}

// The loss of an engine that has these weights and only computes.
inline double loss_with(const Values& weights, DType dtype, comm::World& world) {
  EngineConfig config = config_of(dtype);
  config.zero.stage = 0;
  const std::unique_ptr<nn::Model> model = test::make_tiny_model(Family::gpt2);
  Engine engine(*model, config, world, {.computes_only = true});
  for (const auto& [name, values] : weights) {
    const Shape shape = model->parameter(name).whole_shape();
    engine.set_parameter(name, Tensor::from<float>(values, shape));
  }
  return loss_of(engine);
}

inline Trained train(const EngineConfig& config, bool uses, Device device = {}) {
  Trained all;
  const comm::ConnectOptions connect{.device = device, .seed = 5, .num_threads = 1};
  comm::run_local_ranks(kWorld, connect, [&](comm::World& world) {
    Trained mine;
    const std::unique_ptr<nn::Model> model = test::make_tiny_model(Family::gpt2);
    {
      Engine engine(*model, config, world);
      const auto use = [&] {
        if (uses) mine.uses.push_back({loss_of(engine), read_all(engine, world)});
      };
      for (int64_t i = 0; i < kSteps * config.batch.accumulation; ++i) {
        use();
        engine.backward(engine.forward(make_batch(Family::gpt2, i * world.size() + world.rank())));
        mine.values.push_back(engine.step().loss);
      }
      use();
      Values average;
      for (const auto& [name, parameter] : model->named_parameters()) {
        const std::vector<float> y = engine.parameter(name).to_vector<float>();
        const std::vector<float> z = engine.optimizer_state(name, "z").to_vector<float>();
        const auto v = engine.optimizer_state(name, "exp_avg_sq").to_vector<float>();
        for (const auto* of : {&y, &z, &v}) {
          mine.values.insert(mine.values.end(), of->begin(), of->end());
        }
        average[name] = average_of(y, z);
      }
      for (const double number : engine.state().carried) mine.values.push_back(number);
      mine.wanted = {loss_with(average, config.precision.dtype, world), average};
    }
    for (const auto& [name, parameter] : model->named_parameters()) {
      if (!parameter->has_data()) continue;
      mine.at_end[name] = parameter->data().to_vector<float>();
      const std::vector<float>& wanted = mine.wanted.weights.at(name);
      mine.wanted_at_end[name] =
          Tensor::from<float>(wanted, {std::ssize(wanted)}, config.precision.dtype)
              .to_vector<float>();
    }
    if (world.is_main()) all = std::move(mine);
  });
  return all;
}

// The uses, and the bits of training, at `place` against a training without uses at stage 0.
inline void expect_average(const WhereKept& place, DType dtype, Device device = {}) {
  const offload::SwapFolder folder;
  EngineConfig config = config_of(dtype);
  const std::vector<double> wanted = train(config, /*uses=*/false, device).values;
  config.zero.stage = place.stage;
  if (place.change) place.change(config, folder.path());
  const Trained trained = train(config, /*uses=*/true, device);
  ASSERT_GT(trained.values.size(), 1000u);
  EXPECT_TRUE(trained.values == wanted) << str(dtype);
  EXPECT_TRUE(trained.uses.back().weights == trained.wanted.weights) << str(dtype);
  EXPECT_EQ(trained.uses.back().loss, trained.wanted.loss) << str(dtype);
  // Two micro-batches of a step have the same weights; every step has others.
  for (size_t i = 0; i + 1 < trained.uses.size(); ++i) {
    EXPECT_EQ(trained.uses[i] == trained.uses[i + 1], i % 2 == 0) << str(dtype) << ' ' << i;
  }
  EXPECT_EQ(trained.at_end.empty(), place.stage == 3);
  EXPECT_TRUE(trained.at_end == trained.wanted_at_end) << str(dtype);
}

}  // namespace zinc::zero::weights_for_use
