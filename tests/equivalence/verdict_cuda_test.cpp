// Steps whose verdict is the device's against steps over which the host decides: see
// Note [Verdict on the device]. A client's own optimizer has the host decide, with the same rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "autograd/ops/scale.h"
#include "comm/local/local.h"
#include "comm/nccl/nccl_communicator.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "optim/factory.h"
#include "tests/equivalence/gpu_schedules.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc {
namespace verdict_cuda_test {

using testing::HasSubstr;
using zero::test::make_batch;

constexpr Device kGpu{.kind = DeviceKind::cuda};

// A GPT-2 whose gradients can be made infinite.
struct Explosive : nn::Gpt2 {
  static nn::Gpt2Config config() {
    nn::Gpt2Config config = zero::test::tiny_config();
    config.num_layers = 1;
    return config;
  }
  Explosive() : Gpt2(config()) {}
  Tensor loss(const nn::Batch& batch) override {
    const Tensor sum = Gpt2::loss(batch);
    return explodes ? autograd::scale(sum, std::numeric_limits<double>::infinity()) : sum;
  }
  bool explodes = false;
};

struct Case {
  const char* name;
  int stage = 0;
  int world = 1;  // above 1: each rank has a GPU, with NCCL
  DType dtype = DType::f16;
  zero::LossReduction reduction = zero::LossReduction::tokens;
  bool sgd = false;
  bool every_schedule = false;  // all schedules of streams; else the one that mixes the others
};

zero::EngineConfig config_of(const Case& c) {
  zero::EngineConfig config =
      zero::test::training_config(2, c.dtype, zero::ReduceSchedule::micro_step);
  if (c.dtype == DType::f16) {
    config.precision.loss_scale = {
        .dynamic = true, .initial_scale_power = 8, .window = 2, .hysteresis = 2};
  }
  config.gradient.loss_reduction = c.reduction;
  config.schedule.kind = optim::ScheduleKind::linear;  // another learning rate in every step
  config.schedule.total_steps = 50;
  if (c.sgd) {
    config.optimizer.kind = optim::OptimizerKind::sgd;
    config.optimizer.hyper.momentum = 0.9;
  }
  config.zero.stage = c.stage;
  config.zero.allow_untested_optimizer = true;
  return config;
}

struct Outcome {
  std::vector<double> figures;  // loss, norm, learning rate, scale before and after, by step
  std::vector<std::string> overflows;
  std::vector<std::vector<float>> weights;  // by step
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// One step for each character of `pattern`; in 'x' the last rank's gradient is not finite.
Outcome run(const Case& c, bool host_decides, const std::string& pattern) {
  Outcome outcome;
  comm::ConnectOptions connect{.device = kGpu, .seed = 5, .num_threads = 1};
  connect.deadline = std::chrono::minutes(1);
  connect.spread_devices = c.world > 1;
  if (c.world > 1) connect.device_collectives = comm::DeviceCollectives::nccl;
  comm::run_local_ranks(c.world, connect, [&](comm::World& world) {
    Explosive model;
    const zero::EngineConfig config = config_of(c);
    zero::EngineOptions options;
    if (host_decides) options.optimizer = optim::make_optimizer(config.optimizer);
    zero::Engine engine(model, config, world, std::move(options));
    Outcome mine;
    int64_t index = 0;
    for (const char step : pattern) {
      zero::StepResult result;
      for (int64_t micro = 0; micro < 2; ++micro, ++index) {
        model.explodes = step == 'x' && micro == 0 && world.rank() == world.size() - 1;
        engine.backward(engine.forward(make_batch(index * world.size() + world.rank())));
        result = engine.step();
      }
      EXPECT_EQ(result.outcome,
                step == 'x' ? zero::StepOutcome::skipped_overflow : zero::StepOutcome::applied);
      // Loss and norm of a skipped step are no numbers; -1 stands for them.
      const double loss = step == 'x' ? -1.0 : result.loss;
      const double norm = step == 'x' ? -1.0 : result.gradient_norm;
      mine.figures.insert(mine.figures.end(),
                          {loss, norm, result.learning_rate, result.loss_scale,
                           engine.state().loss_scale.scale, double(result.num_targets)});
      mine.overflows.push_back(result.overflow);
      mine.weights.push_back(c.sgd ? zero::test::weights_of(engine)
                                   : zero::test::weights_and_states_of(engine));
    }
    if (world.is_main()) outcome = std::move(mine);
  });
  return outcome;
}

class GpuVerdict : public testing::TestWithParam<Case> {
 protected:
  ~GpuVerdict() override {
    choose(kSchedules[0]);
#if defined(ZINC_CUDA_EMULATED)
    emulator::set_num_devices(1);
#endif
  }
};

TEST_P(GpuVerdict, GivesTheStepsThatTheHostDecides) {
  const Case c = GetParam();
  if (c.world > 1) {
#if defined(ZINC_CUDA_EMULATED)
    emulator::set_num_devices(c.world);
#endif
    if (!comm::why_no_nccl().empty()) GTEST_SKIP() << comm::why_no_nccl();
    if (static_cast<int>(cuda_devices().size()) < c.world) GTEST_SKIP() << "needs more GPUs";
  }
  const std::string pattern = c.dtype == DType::f32 ? "..." : ".x.xx..";
  const Outcome reference = run(c, true, pattern);
  for (size_t step = 0; step < pattern.size(); ++step) {
    if (step > 0) {
      EXPECT_EQ(reference.weights[step] == reference.weights[step - 1], pattern[step] == 'x');
    }
  }
  for (const Schedule& schedule : kSchedules) {
    if (!c.every_schedule && &schedule != std::end(kSchedules) - 1) continue;
    choose(schedule);
    const Outcome outcome = run(c, false, pattern);
    EXPECT_EQ(outcome.figures, reference.figures) << schedule.name;
    EXPECT_EQ(outcome.overflows, reference.overflows);
    EXPECT_TRUE(outcome.weights == reference.weights) << schedule.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Reduced, GpuVerdict,
    testing::Values(Case{.name = "Stage0", .every_schedule = true}, Case{"Stage1", 1},
                    Case{"Stage2", 2}, Case{"Stage3", 3}, Case{"Unchecked", 0, 1, DType::f32},
                    Case{"Bf16", 1, 1, DType::bf16},
                    Case{"Sgd", 0, 1, DType::f16, zero::LossReduction::tokens, true},
                    Case{"MeanOfMeans", 0, 1, DType::f16, zero::LossReduction::micro_batch},
                    Case{"Nccl0", 0, 2},
                    Case{"Nccl1", 1, 2, DType::f16, zero::LossReduction::micro_batch},
                    Case{"Nccl2", 2, 2}, Case{"Nccl3", 3, 2}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(GpuVerdict, AnOverflowAtTheMinimum_AndTooManySkips_AreNamed) {
  const auto message = [](const optim::LossScaleConfig& scale, int64_t skips) {
    std::string text;
    comm::run_local_ranks(1, {.device = kGpu, .num_threads = 1}, [&](comm::World& world) {
      Explosive model;
      zero::EngineConfig config = config_of({.name = ""});
      config.batch.accumulation = 1;
      config.precision.loss_scale = scale;
      config.precision.max_consecutive_skips = skips;
      zero::Engine engine(model, config, world);
      model.explodes = true;
      try {
        for (int64_t step = 0; step < 3; ++step) {
          engine.backward(engine.forward(make_batch(step)));
          engine.step();
        }
      } catch (const NumericsError& error) {
        text = error.what();
      }
    });
    return text;
  };
  EXPECT_THAT(message({.dynamic = true, .initial_scale_power = 1, .hysteresis = 1}, 9),
              HasSubstr("step 2: the gradient is not finite (first: transformer."));
  EXPECT_THAT(message({}, 3), HasSubstr("not finite for 3 steps in a row, last in transformer."));
}

#if defined(ZINC_CUDA_EMULATED)
// Three times for the loss of each micro-batch (before, in and after its copy to the host) and
// twice for the norm, however many parameters there are.
TEST(GpuVerdict, AStepThatTheHostDecides_WaitsForLossesAndNorm) {
  for (const int64_t layers : {1, 3}) {
    comm::run_local_ranks(
        1, {.device = kGpu, .seed = 5, .num_threads = 1}, [&](comm::World& world) {
          nn::Gpt2Config shape = zero::test::tiny_config();
          shape.num_layers = layers;
          nn::Gpt2 model(shape);
          const zero::EngineConfig config = config_of({.name = "", .stage = 1});
          zero::EngineOptions options;
          options.optimizer = optim::make_optimizer(config.optimizer);
          zero::Engine engine(model, config, world, std::move(options));
          for (int64_t step = 0; step < 2; ++step) {  // libraries settle in the first
            const int64_t before = emulator::num_host_waits();
            for (int64_t micro = 0; micro < 2; ++micro) {
              engine.backward(engine.forward(make_batch(2 * step + micro)));
              engine.step();
            }
            if (step == 0) continue;
            EXPECT_EQ(emulator::num_host_waits() - before, 2 * 3 + 2) << layers << " layers";
          }
        });
  }
}

// The host's calls that stop it or the device, in all ranks.
struct Stops {
  int64_t waits = emulator::num_host_waits();
  int64_t device_wide = emulator::num_device_synchronizations();
  int64_t memory = emulator::num_memory_calls();
};

// However many parameters and ranks there are: each waits once, when its step is queued, and takes
// no memory from CUDA after the first step. Ranks meet on the host within a step, so that a wait
// that nobody counts shows too: it needs a collective that the other rank has not let run.
TEST(GpuVerdict, AStepWaitsOnce_AtItsEnd) {
  emulator::set_default_schedule(0, ShuffledExecutor::Order::latest);
  for (const int world : {1, 2}) {
    for (const int stage : {0, 1, 2, 3}) {
      emulator::set_num_devices(world);
      comm::ConnectOptions connect{.device = kGpu, .seed = 5, .num_threads = 1};
      connect.deadline = std::chrono::seconds(20);
      connect.spread_devices = world > 1;
      if (world > 1) connect.device_collectives = comm::DeviceCollectives::nccl;
      std::barrier threads(world);
      const auto count = [&] {
        threads.arrive_and_wait();
        const Stops stops;
        threads.arrive_and_wait();
        return stops;
      };
      const auto train = [&](comm::World& ranks) {
        nn::Gpt2 model(zero::test::tiny_config());
        zero::Engine engine(model, config_of({.name = "", .stage = stage, .world = world}), ranks);
        for (int64_t step = 0; step < 2; ++step) {  // libraries settle in the first
          std::vector<nn::Batch> batches;
          for (int64_t micro = 0; micro < 2; ++micro) {
            batches.push_back(make_batch(2 * step + micro));
          }
          const Stops before = count();
          engine.backward(engine.forward(batches[0]));
          engine.step();
          engine.backward(engine.forward(batches[1]));
          const Stops passed = count();
          engine.step();
          const Stops after = count();
          if (step == 0) continue;
          SCOPED_TRACE(str("stage ", stage, ", world ", world));
          EXPECT_EQ(passed.waits, before.waits);
          EXPECT_EQ(after.waits - passed.waits, world);
          EXPECT_EQ(after.device_wide, before.device_wide);
          EXPECT_EQ(after.memory, before.memory);
        }
      };
      comm::run_local_ranks(world, connect, [&](comm::World& ranks) {
        try {
          train(ranks);
        } catch (...) {
          threads.arrive_and_drop();
          throw;
        }
      });
    }
  }
  emulator::set_num_devices(1);
  choose(kSchedules[0]);
}
#endif

}  // namespace verdict_cuda_test
}  // namespace zinc
