// tests/equivalence/host_update_run.h: updates of states in host memory that go on beside passes,
// on a CPU rank and on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "optim/element_rule.h"
#include "tests/equivalence/placement_run.h"
#include "tests/offload/swap_folder.h"
#include "zero/engine.h"

namespace zinc::zero::test {

struct HostUpdateWay {
  int stage = 1;
  OffloadDevice parameters = OffloadDevice::none;
  PassOrder order = PassOrder::horizontal;
  double ratio = 1.0;
  OffloadDevice inputs = OffloadDevice::none;  // place of recomputation's inputs
};

struct HostUpdateCase {
  Case run;
  bool is_early = false;  // nothing can stop a step: the update begins during backward
  std::vector<HostUpdateWay> ways;
};

inline std::string name_of(const HostUpdateCase& c) {
  return str(c.is_early ? "Early" : "Late", "World", c.run.world, "Accumulation",
             c.run.accumulation, name_of(c.run.dtype));
}

inline EngineConfig host_update_config(const HostUpdateCase& c) {
  EngineConfig config = config_of(c.run);
  if (c.is_early) {
    config.gradient.clipping = 0.0;
    config.precision.check_overflow = false;
  }
  return config;
}

inline EngineConfig host_update_config(const HostUpdateCase& c, const HostUpdateWay& way,
                                       const offload::SwapFolder& folder) {
  EngineConfig config = placed(host_update_config(c), OffloadDevice::cpu, way.parameters, folder);
  config.zero.stage = way.stage;
  config.gradient.reduce_schedule = config_of(c.run).gradient.reduce_schedule;
  config.zero.overlap_comm = true;
  // Groups that are gathered alone, and groups of which parts are published.
  if (way.order == PassOrder::horizontal) config.zero.param_persistence_threshold = 0;
  config.zero.offload_optimizer.ratio = way.ratio;
  config.pass_order = way.order;
  config.overlap_update = true;
  if (way.inputs != OffloadDevice::none) {
    config.recompute = {
        .every_blocks = 1,
        .offload = {.device = way.inputs, .nvme_path = folder.path(), .buffer_count = 2}};
  }
  return config;
}

inline std::string words_of(const HostUpdateWay& way) {
  return str("stage ", way.stage, ", parameters ", name_of(way.parameters), ", ",
             name_of(way.order), ", ratio ", way.ratio, ", inputs ", name_of(way.inputs));
}

// Not collective: what other ranks wait for has not been published yet.
inline void expect_own_weights_of_parameters(Engine& engine) {
  struct Piece {
    std::string name;
    int64_t begin;
    std::vector<float> values;
  };
  std::vector<Piece> pieces;
  engine.read_own(Engine::Own::weights, [&](const OwnPiece& piece) {
    const auto* data = static_cast<const float*>(piece.values.data());
    pieces.push_back({piece.name, piece.begin, {data, data + piece.values.numel()}});
  });
  ASSERT_FALSE(pieces.empty());
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    const auto all = engine.parameter(name).to_vector<float>();
    for (const Piece& piece : pieces) {
      if (piece.name != name) continue;
      EXPECT_TRUE(std::equal(piece.values.begin(), piece.values.end(), all.begin() + piece.begin))
          << name;
    }
  }
}

// The values that a client sees when it looks after each step of a training, each time in another
// way, so that each way meets an update under way; six ways in all.
inline std::vector<float> seen_between_steps(const EngineConfig& config, Device device, int ranks,
                                             int steps) {
  std::vector<float> seen;
  comm::ConnectOptions connect{.device = device, .seed = 5, .num_threads = 1};
  connect.memory.poison = true;
  comm::run_local_ranks(ranks, connect, [&](comm::World& world) {
    world.communicator().set_deadline(std::chrono::minutes(1));
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    const auto take = [&](const std::vector<float>& values) {
      if (world.rank() == 0) seen.insert(seen.end(), values.begin(), values.end());
    };
    const std::string name = "transformer.h.3.mlp.c_fc.weight";
    for (int step = 0; step < steps; ++step) {
      engine.backward(engine.forward(make_batch(2 * step + world.rank())));
      take(engine.gradient(name).to_vector<float>());
      engine.step();
      if (step == 0) take(engine.parameter(name).to_vector<float>());
      if (step == 1) take(engine.optimizer_state(name, "exp_avg_sq").to_vector<float>());
      if (step == 2) {
        const auto parts = gather(engine, engine.evaluate(make_batch(world.rank())));
        for (const Evaluation& part : parts) take({static_cast<float>(part.loss_sum)});
      }
      if (step == 3) take(engine.next_logits(make_batch(0)["input_ids"]).to_vector<float>());
      if (step == 4) {
        engine.edit({name}, [](Engine::EditedParameters& edited) {
          auto* data = edited.begin()->second.view().data_as<float>();
          for (int64_t i = 0; i < 100; ++i) data[i] *= 2.0f;
        });
      }
      if (step == 5) expect_own_weights_of_parameters(engine);
    }
    take(engine.parameter(name).to_vector<float>());
    engine.backward(engine.forward(make_batch(world.rank())));
    engine.step();  // an update that the engine's end meets
  });
  return seen;
}

// AdamW, whose `failing`-th update of a tile ends in an error.
class FailingAdam final : public optim::Optimizer {
 public:
  explicit FailingAdam(int failing) : failing_(failing) {}
  std::string_view name() const override { return adam_.name(); }
  int num_states() const override { return adam_.num_states(); }
  std::string_view state_name(int i) const override { return adam_.state_name(i); }
  void update(const optim::Update& args, const optim::HyperParameters& hyper,
              StreamRef stream) const override {
    if (++updates_ == failing_) throw NumericsError("tile 7 has burst");
    adam_.update(args, hyper, stream);
  }

 private:
  optim::ElementRule adam_{{}};
  int failing_;
  mutable int updates_ = 0;
};

template <class Use>
std::string error_of(const Use& use) {
  try {
    use();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// The error of an update that is under way is that of the next call that needs it, and of all
// after that.
inline void expect_error_of_a_late_update(EngineConfig config, Device device) {
  comm::ConnectOptions connect{.device = device, .seed = 5, .num_threads = 1};
  comm::run_local_ranks(1, connect, [&](comm::World& world) {
    config.zero.force_cpu_optimizer = false;
    config.zero.allow_untested_optimizer = true;
    nn::Gpt2 model(tiny_config());
    EngineOptions options;
    options.optimizer = std::make_unique<FailingAdam>(20);
    Engine engine(model, config, world, std::move(options));
    engine.backward(engine.forward(make_batch(0)));
    ASSERT_EQ(engine.step().outcome, StepOutcome::applied);
    const auto expect = [&](const auto& use) {
      EXPECT_NE(error_of(use).find("tile 7 has burst"), std::string::npos) << error_of(use);
    };
    expect([&] { engine.forward(make_batch(1)); });
    expect([&] { engine.parameter("transformer.h.3.mlp.c_fc.weight"); });
    expect([&] { engine.evaluate(make_batch(1)); });
    expect([&] { engine.read_own(Engine::Own::weights, {}); });
    expect([&] { engine.finish_update(); });
  });
}

}  // namespace zinc::zero::test
