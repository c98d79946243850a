// Gradients, weights and states by name, and changes by hand, on every stage.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "core/stall.h"
#include "core/trace.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/tiny_model.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace engine_access_test {

using test::make_batch;
using test::tiny_config;

EngineConfig config_of(int stage, int64_t accumulation = 1) {
  EngineConfig config;
  config.batch.micro_batch = 2;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 100;
  config.batch.accumulation = accumulation;
  config.optimizer.hyper.lr = 1e-2;
  return config;
}

template <class Body>
void on_ranks(int world_size, const Body& body) {
  comm::run_local_ranks(world_size, {.seed = 5, .num_threads = 1}, body);
}

// The text of what a misuse throws.
template <class Use>
std::string misuse(const Use& use) {
  try {
    use();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class Held : public testing::TestWithParam<OffloadDevice> {};
INSTANTIATE_TEST_SUITE_P(Zero, Held, testing::Values(OffloadDevice::cpu, OffloadDevice::nvme),
                         [](const auto& info) {
                           return info.param == OffloadDevice::cpu ? "host" : "nvme";
                         });

// Values that are read beside training stay unchanged until the reader releases them; only then
// does the update that changes them go on. The trace names the wait. Returns whether the update
// waited, which it need not if `held_for` was over before it began.
bool update_waits(OffloadDevice device, std::chrono::milliseconds held_for) {
  const offload::SwapFolder swap;
  TraceRecorder trace;
  comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
  connect.trace = &trace;
  comm::run_local_ranks(2, connect, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    EngineConfig config = config_of(2);
    config.zero.offload_optimizer.device = device;
    config.zero.offload_optimizer.nvme_path = swap.path();
    config.zero.sub_group_size = 5000;
    config.gradient.clipping = 0.5;
    Engine engine(model, config, world);
    const auto step = [&](int number) {
      engine.backward(engine.forward(make_batch(2 * number + world.rank())));
      engine.step();
    };
    const auto read_all = [&](bool hold, const TakeOwn& take) {
      engine.read_own(Engine::Own::weights_and_states, take, hold);
    };
    step(0);
    std::vector<std::vector<float>> before, after;
    const auto note_in = [](std::vector<std::vector<float>>& all) {
      return [&all](const OwnPiece& piece) {
        const auto* values = piece.values.data_as<float>();
        all.emplace_back(values, values + piece.values.numel());
      };
    };
    read_all(false, note_in(before));
    struct Piece {
      Lease lease;
      ConstView values;
      std::function<void(View)> read;
    };
    std::vector<Piece> held;
    EXPECT_TRUE(engine.usage().can_hold_own);
    read_all(true, [&](const OwnPiece& piece) {
      EXPECT_TRUE(piece.lease) << piece.name;
      held.push_back({piece.lease, piece.values, piece.read});
    });
    ASSERT_EQ(held.size(), before.size());
    int changed = 0;
    std::thread reader([&] {
      std::this_thread::sleep_for(held_for);
      for (size_t i = 0; i < held.size(); ++i) {
        std::vector<float> now(before[i].size());
        if (held[i].read) {
          held[i].read(View(now.data(), DType::f32, Shape{static_cast<int64_t>(now.size())}, kCpu));
        } else {
          std::copy_n(held[i].values.data_as<float>(), now.size(), now.begin());
        }
        if (now != before[i]) ++changed;
        held[i].lease.reset();
      }
    });
    step(1);
    step(2);
    reader.join();
    EXPECT_EQ(changed, 0) << "of " << held.size();
    read_all(false, note_in(after));
    for (size_t i = 0; i < after.size(); ++i) EXPECT_NE(after[i], before[i]) << i;
  });
  const std::vector<TraceEvent> events = trace.events();
  return std::ranges::any_of(events, [](const TraceEvent& event) {
    return event.kind == TraceKind::stall && event.lane == kHostLane &&
           event.name == "checkpoint" && event.end_ns > event.begin_ns;
  });
}

TEST_P(Held, ValuesStayAsTheyAre_AndTheUpdateWaits) {
  using std::chrono::milliseconds;
  const auto waits = [&](milliseconds held_for) { return update_waits(GetParam(), held_for); };
  EXPECT_TRUE(waits(milliseconds(50)) || waits(milliseconds(500)) || waits(milliseconds(5000)));
}

// Values on the device, or in a buffer for values on a disk, are read without holding them.
TEST(EngineAccess, ValuesOnTheDeviceOrInABuffer_AreNotHeld) {
  const offload::SwapFolder swap;
  EngineConfig buffered = config_of(3);
  buffered.zero.offload_optimizer.device = OffloadDevice::cpu;
  buffered.zero.offload_param = {.device = OffloadDevice::nvme, .nvme_path = swap.path()};
  for (const EngineConfig& config : {config_of(1), buffered}) {
    on_ranks(2, [&](comm::World& world) {
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config, world);
      EXPECT_FALSE(engine.usage().can_hold_own);
      engine.read_own(
          Engine::Own::weights_and_states,
          [&](const OwnPiece& piece) {
            EXPECT_FALSE(piece.lease) << piece.name;
            EXPECT_TRUE(piece.values) << piece.name;
          },
          /*hold=*/true);
    });
  }
}

class EveryStage : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Zero, EveryStage, testing::Values(0, 1, 2, 3));

std::vector<float> all_gradients(int stage, int world_size, double* norm) {
  std::vector<float> values;
  on_ranks(world_size, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_of(stage), world);
    engine.backward(engine.forward(make_batch(world.rank())));
    for (const auto& [name, parameter] : model.named_parameters()) {
      const Tensor gradient = engine.gradient(name);
      EXPECT_EQ(gradient.shape(), parameter->shape());
      const auto part = gradient.to_vector<float>();
      if (world.rank() == 0) values.insert(values.end(), part.begin(), part.end());
    }
    const StepResult result = engine.step();
    EXPECT_EQ(result.step, 1);
    if (world.rank() == 0) *norm = result.gradient_norm;
  });
  return values;
}

TEST_P(EveryStage, Gradient_IsThatOfTheMeanLossOverAllRanks) {
  double norm = 0.0;
  double reference_norm = 0.0;
  const std::vector<float> values = all_gradients(GetParam(), 3, &norm);
  EXPECT_EQ(values, all_gradients(0, 3, &reference_norm));
  double sum = 0.0;
  for (const float value : values) sum += double{value} * double{value};
  // The elements are divided in f32, the norm once in f64.
  EXPECT_NEAR(std::sqrt(sum), norm, 1e-6 * norm);
  EXPECT_EQ(norm, reference_norm);
}

TEST(Gradient, OutsideOfAStepIsAnError) {
  on_ranks(1, [](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_of(0, 2), world);
    EXPECT_THROW(engine.gradient("transformer.wte.weight"), InvalidArgument);
    engine.backward(engine.forward(make_batch(0)));
    EXPECT_THROW(engine.gradient("transformer.wte.weight"), InvalidArgument);
    engine.step();
    engine.backward(engine.forward(make_batch(1)));
    EXPECT_NO_THROW(engine.gradient("transformer.wte.weight"));
    engine.step();
    EXPECT_THROW(engine.gradient("transformer.wte.weight"), InvalidArgument);
  });
}

TEST_P(EveryStage, Edit_WritesBackWhatTheModifierLeft) {
  on_ranks(2, [](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_of(GetParam()), world);
    const std::vector<std::string> names{"transformer.wpe.weight", "transformer.h.1.ln_1.bias"};
    const float before = engine.parameter("transformer.wte.weight").to_vector<float>()[0];
    engine.edit(
        names,
        [&](Engine::EditedParameters& values) {
          ASSERT_EQ(values.size(), 2u);
          auto* data = values.find("transformer.wpe.weight")->second.view().data_as<float>();
          data[7] = 10.0f + static_cast<float>(world.rank());
        },
        1);
    const auto values = engine.parameter("transformer.wpe.weight").to_vector<float>();
    EXPECT_EQ(values[7], 11.0f);  // of rank 1
    EXPECT_NE(values[6], 11.0f);
    EXPECT_EQ(engine.parameter("transformer.wte.weight").to_vector<float>()[0], before);
    // The model computes with it: the loss of a row that uses the position changes.
    EXPECT_TRUE(std::isfinite(engine.forward(make_batch(world.rank())).mean()));
  });
}

TEST_P(EveryStage, Edit_ThatFailsOnARankChangesNothing) {
  on_ranks(2, [](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_of(GetParam()), world);
    const auto before = engine.parameter("transformer.wpe.weight").to_vector<float>();
    const auto change = [&](Engine::EditedParameters& values) {
      values.begin()->second.view().data_as<float>()[0] = 99.0f;
      if (world.rank() == 1) throw std::runtime_error("no");
    };
    EXPECT_ANY_THROW(engine.edit({"transformer.wpe.weight"}, change));
    EXPECT_EQ(engine.parameter("transformer.wpe.weight").to_vector<float>(), before);
  });
}

TEST(Edit, InTheMiddleOfAStepIsAnError) {
  on_ranks(1, [](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_of(3), world);
    engine.backward(engine.forward(make_batch(0)));
    EXPECT_THROW(engine.edit({"transformer.wpe.weight"}, [](auto&) {}), InvalidArgument);
    engine.step();
    EXPECT_NO_THROW(engine.edit({"transformer.wpe.weight"}, [](auto&) {}));
    EXPECT_THROW(engine.edit({"transformer.wpe.wait"}, [](auto&) {}), InvalidArgument);
  });
}

// Gradients of a step under way belong to the old values; a change would lose them or the new
// values.
TEST_P(EveryStage, SetParameter_InTheMiddleOfAStep_IsNamedAndChangesNothing) {
  on_ranks(2, [](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_of(GetParam(), 2), world);
    const char* const name = "transformer.wpe.weight";
    const Tensor values = Tensor::full({16, 24}, 0.5);
    const auto before = engine.parameter(name).to_vector<float>();
    for (int64_t micro = 0; micro < 2; ++micro) {
      engine.backward(engine.forward(make_batch(2 * micro + world.rank())));
      EXPECT_NE(misuse([&] { engine.set_parameter(name, values); }).find("between steps"),
                std::string::npos);
      EXPECT_EQ(engine.parameter(name).to_vector<float>(), before);
      engine.step();
    }
    engine.set_parameter(name, values);
    EXPECT_EQ(engine.parameter(name).to_vector<float>(), values.to_vector<float>());
  });
}

std::vector<float> weights_after(int stage, bool no_sync) {
  std::vector<float> weights;
  on_ranks(2, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_of(stage, no_sync ? 1 : 3), world);
    for (int64_t step = 0; step < 3; ++step) {
      const auto batch = [&](int64_t micro) {
        return make_batch((step * 3 + micro) * 2 + world.rank());
      };
      if (no_sync) {
        const int64_t sent = world.communicator().bytes_sent();
        {
          const Engine::NoSync scope(engine);
          for (int64_t micro = 0; micro < 2; ++micro) {
            engine.backward(engine.forward(batch(micro)));
            EXPECT_THROW(engine.step(), InvalidArgument);
          }
        }
        EXPECT_EQ(world.communicator().bytes_sent(), sent);
        engine.backward(engine.forward(batch(2)));
        EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
      } else {
        for (int64_t micro = 0; micro < 3; ++micro) {
          engine.backward(engine.forward(batch(micro)));
          engine.step();
        }
      }
    }
    const auto values = engine.parameter("transformer.wte.weight").to_vector<float>();
    if (world.rank() == 0) weights = values;
  });
  return weights;
}

TEST(NoSync, IsAccumulationByHand) {
  for (const int stage : {0, 1}) {
    EXPECT_EQ(weights_after(stage, true), weights_after(stage, false)) << stage;
  }
}

TEST(NoSync, IsRefusedByNameWhereGradientsAreSharded) {
  on_ranks(1, [](comm::World& world) {
    for (const int stage : {2, 3}) {
      nn::Gpt2 model(tiny_config());
      Engine engine(model, config_of(stage), world);
      try {
        const Engine::NoSync scope(engine);
        FAIL() << "stage " << stage;
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find(str("stage ", stage)), std::string::npos);
      }
    }
    nn::Gpt2 model(tiny_config());
    EngineConfig config = config_of(0);
    config.precision.dtype = DType::bf16;
    Engine engine(model, config, world);
    EXPECT_THROW(Engine::NoSync{engine}, InvalidArgument);
  });
}

TEST_P(EveryStage, Misuse_IsNamedAndLeavesTheEngineUsable) {
  on_ranks(1, [](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_of(GetParam()), world);
    EXPECT_NE(misuse([&] { engine.step(); }).find("no backward()"), std::string::npos);
    EXPECT_NE(misuse([&] { engine.backward({}); }).find("the loss is empty"), std::string::npos);
    EXPECT_NE(misuse([&] { engine.forward(make_batch(0, 3)); }).find("3 sequences"),
              std::string::npos);
    EXPECT_NE(misuse([&] { engine.parameter("transformer.wte.wait"); }).find("did you mean"),
              std::string::npos);
    EXPECT_NE(misuse([&] {
                engine.set_parameter("transformer.wte.weight", Tensor::zeros({3}));
              }).find("has shape"),
              std::string::npos);
    // Values are the engine's now.
    EXPECT_NE(misuse([&] { model.parameter("transformer.wte.weight").data(); }).find("wte.weight"),
              std::string::npos);

    engine.backward(engine.forward(make_batch(0)));
    EXPECT_NE(misuse([&] { engine.backward(engine.forward(make_batch(1))); }).find("call step()"),
              std::string::npos);
    EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
  });
}

}  // namespace engine_access_test
}  // namespace zinc::zero
