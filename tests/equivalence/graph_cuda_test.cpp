// Passes that are recorded once and launched as CUDA graphs, against the same passes as ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "comm/nccl/nccl_communicator.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/trace.h"
#include "tests/equivalence/gpu_schedules.h"
#include "tests/zero/states_of.h"
#include "tests/zero/tiny_model.h"
#include "zero/engine.h"

namespace zinc {
namespace graph_cuda_test {

using testing::HasSubstr;
using zero::test::Family;
using zero::test::make_batch;

constexpr Device kGpu{.kind = DeviceKind::cuda};

struct Case {
  const char* name;
  int stage = 0;
  int world = 1;
  Family family = Family::gpt2;
  DType dtype = DType::f32;
  int scale_power = 8;  // f16; 14 overflows
  int64_t accumulation = 1;
  int64_t recompute_every = 0;
  double dropout = 0.0;
  bool every_schedule = false;  // all schedules of streams; else the one that mixes the others
  bool nccl = false;            // a GPU for every rank; else all share the first one
  optim::OptimizerKind rule = optim::OptimizerKind::adamw;
  bool selective = false;  // recomputation
  bool means = false;      // means over each micro-batch's own targets, which differ in number
  optim::Moments moments = optim::Moments::f32;
  bool fp8 = false;
  kernels::WgmmaUse wgmma = kernels::WgmmaUse::by_table;
  int longer_step = -1;  // step with one more micro-batch, in a NoSync
};

zero::EngineConfig config_of(const Case& c, bool graph) {
  zero::EngineConfig config;
  config.batch = {.micro_batch = 2, .accumulation = c.accumulation};
  config.precision.dtype = c.dtype;
  config.precision.check_overflow = c.dtype != DType::f32;
  if (c.dtype == DType::f16) {
    // Doubles after steps, and halves after those that overflow.
    config.precision.loss_scale = {
        .dynamic = true, .initial_scale_power = c.scale_power, .window = 1};
  }
  config.gradient.clipping = 0.5;
  if (c.means) config.gradient.loss_reduction = zero::LossReduction::micro_batch;
  config.optimizer.hyper = {.lr = 1e-2, .weight_decay = 0.1};
  config.optimizer.moments = c.moments;
  config.fp8 = c.fp8;
  config.wgmma = c.wgmma;
  config.optimizer.kind = c.rule;
  if (c.rule == optim::OptimizerKind::sgd) config.optimizer.hyper.momentum = 0.9;
  config.schedule.kind = optim::ScheduleKind::linear;  // another learning rate in every step
  config.schedule.total_steps = 8;
  config.zero.stage = c.stage;
  config.zero.overlap_comm = true;
  config.zero.param_persistence_threshold = 0;  // so on stage 3 all parameters are gathered
  config.zero.max_live_parameters = 20'000;     // so some of them are released before backward
  config.recompute.every_blocks = c.recompute_every;
  config.recompute.selective = c.selective;
  config.cuda_graph = graph;
  return config;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> scales;
  std::vector<double> norms;
  std::vector<double> evaluations;
  std::vector<float> weights;  // and states
  zero::GraphUse use;
  bool operator==(const Outcome& other) const {
    return losses == other.losses && scales == other.scales && norms == other.norms &&
           evaluations == other.evaluations && weights == other.weights;
  }
};

void train(const Case& c, bool graph, int steps, comm::World& world, Outcome& outcome) {
  const std::unique_ptr<nn::Model> model = zero::test::make_tiny_model(c.family, c.dropout);
  zero::Engine engine(*model, config_of(c, graph), world);
  for (int step = 0; step < steps; ++step) {
    zero::StepResult result;
    if (step == c.longer_step) {
      const zero::Engine::NoSync no_sync(engine);
      const nn::Batch batch = make_batch(c.family, 500 + world.rank());
      engine.run_passes({&batch, 1});
    }
    for (int64_t micro = 0; micro < c.accumulation; ++micro) {
      const int64_t index = (step * c.accumulation + micro) * world.size() + world.rank();
      const nn::Batch batch = make_batch(c.family, index);
      engine.run_passes({&batch, 1});
      result = engine.step();
    }
    outcome.losses.push_back(result.loss);
    outcome.scales.push_back(result.loss_scale);
    const bool skipped = result.outcome == zero::StepOutcome::skipped_overflow;
    outcome.norms.push_back(skipped ? -1.0 : result.gradient_norm);
    // Takes memory between launches.
    outcome.evaluations.push_back(engine.evaluate(make_batch(c.family, 1000 + step)).loss_sum);
  }
  for (const auto& [name, parameter] : model->named_parameters()) {
    auto tensors = zero::test::states_of(engine, name);
    tensors.emplace("", engine.parameter(name));
    for (const auto& [kind, tensor] : tensors) {
      const auto values = tensor.to_vector<float>();
      outcome.weights.insert(outcome.weights.end(), values.begin(), values.end());
    }
  }
  outcome.use = engine.usage().graphs;
}

Outcome run(const Case& c, bool graph, int steps) {
  Outcome outcome;
  comm::ConnectOptions connect{.device = kGpu, .seed = 5, .num_threads = 1};
  connect.deadline = std::chrono::minutes(1);  // a hang is an error
  connect.spread_devices = c.nccl;
  connect.device_collectives =
      c.nccl ? comm::DeviceCollectives::nccl : comm::DeviceCollectives::staged;
  comm::run_local_ranks(c.world, connect, [&](comm::World& world) {
    Outcome mine;
    train(c, graph, steps, world, mine);
    if (world.is_main()) outcome = std::move(mine);
  });
  return outcome;
}

class GpuGraphs : public testing::TestWithParam<Case> {
 protected:
  ~GpuGraphs() override {
    choose(kSchedules[0]);
#if defined(ZINC_CUDA_EMULATED)
    emulator::set_num_devices(1);
#endif
  }
};

TEST_P(GpuGraphs, GiveTheBitsOfPassesThatRun) {
  const Case c = GetParam();
  constexpr int kSteps = 3;
  if (c.nccl) {
#if defined(ZINC_CUDA_EMULATED)
    emulator::set_num_devices(c.world);
#endif
    if (!comm::why_no_nccl().empty()) GTEST_SKIP() << comm::why_no_nccl();
    if (static_cast<int>(cuda_devices().size()) < c.world) GTEST_SKIP() << "needs more GPUs";
  }
  const Outcome reference = run(c, false, kSteps);
  EXPECT_EQ(reference.use.recorded, 0);
  if (c.nccl) {
    // Collectives through the host: the host decides over steps, and waits for sums.
    Case staged = c;
    staged.nccl = false;
    EXPECT_EQ(run(staged, false, kSteps), reference);
  }
  for (const Schedule& schedule : kSchedules) {
    if (!c.every_schedule && &schedule != std::end(kSchedules) - 1) continue;
    choose(schedule);
    const Outcome outcome = run(c, true, kSteps);
    EXPECT_EQ(outcome, reference) << schedule.name;
    EXPECT_EQ(outcome.use.launched, (kSteps - 1) * c.accumulation);
    const bool records_step = c.world == 1 || c.nccl;
    EXPECT_EQ(outcome.use.step_parts, records_step ? 2 * (kSteps - 1) : 0);
    EXPECT_EQ(outcome.use.recorded, std::min<int64_t>(c.accumulation, 3));
    EXPECT_EQ(c.dtype == DType::f16, outcome.scales[1] != outcome.scales[2]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Reduced, GpuGraphs,
    testing::Values(
        Case{.name = "Gpt2", .every_schedule = true}, Case{.name = "Several", .accumulation = 3},
        Case{.name = "RisingScale", .dtype = DType::f16},
        Case{.name = "FallingScale", .dtype = DType::f16, .scale_power = 14},
        Case{.name = "Means",
             .world = 2,
             .dtype = DType::bf16,
             .accumulation = 2,
             .recompute_every = 1,
             .means = true},
        Case{.name = "Dropout",
             .dtype = DType::bf16,
             .accumulation = 2,
             .recompute_every = 1,
             .dropout = 0.2},
        Case{.name = "Recomputed", .family = Family::llama, .recompute_every = 1},
        Case{.name = "Selective", .family = Family::llama, .accumulation = 2, .selective = true},
        Case{.name = "SelectiveSharedWeights", .stage = 3, .dtype = DType::bf16, .selective = true},
        Case{.name = "SharedStates",
             .stage = 1,
             .world = 2,
             .family = Family::llama,
             .dtype = DType::bf16,
             .accumulation = 2},
        Case{.name = "EncoderDecoder",
             .family = Family::t5,
             .dtype = DType::bf16,
             .accumulation = 2,
             .recompute_every = 1,
             .dropout = 0.2},
        Case{.name = "Encoder", .stage = 2, .family = Family::roberta, .dropout = 0.2},
        Case{.name = "Sgd", .rule = optim::OptimizerKind::sgd},
        Case{.name = "Averages", .rule = optim::OptimizerKind::schedule_free},
        Case{.name = "Muon", .dtype = DType::bf16, .rule = optim::OptimizerKind::muon},
        Case{.name = "MuonSkipped",
             .stage = 2,
             .dtype = DType::f16,
             .scale_power = 14,
             .rule = optim::OptimizerKind::muon},
        Case{.name = "MuonNccl",
             .stage = 2,
             .world = 2,
             .dtype = DType::bf16,
             .nccl = true,
             .rule = optim::OptimizerKind::muon,
             .moments = optim::Moments::bf16},
        Case{.name = "Lamb", .every_schedule = true, .rule = optim::OptimizerKind::lamb},
        Case{.name = "LambSkipped",
             .dtype = DType::f16,
             .scale_power = 14,
             .rule = optim::OptimizerKind::lamb},
        Case{.name = "LambNccl",
             .stage = 3,
             .world = 2,
             .nccl = true,
             .rule = optim::OptimizerKind::lamb},
        Case{.name = "Adafactor", .rule = optim::OptimizerKind::adafactor},
        Case{.name = "AdafactorSkipped",
             .stage = 1,
             .dtype = DType::f16,
             .scale_power = 14,
             .rule = optim::OptimizerKind::adafactor},
        Case{.name = "AdafactorNccl",
             .world = 2,
             .dtype = DType::bf16,
             .nccl = true,
             .rule = optim::OptimizerKind::adafactor},
        Case{.name = "AdafactorSharedNccl",
             .stage = 2,
             .world = 2,
             .every_schedule = true,
             .nccl = true,
             .rule = optim::OptimizerKind::adafactor},
        Case{.name = "AveragesSkipped",
             .stage = 1,
             .world = 2,
             .dtype = DType::f16,
             .scale_power = 14,
             .rule = optim::OptimizerKind::schedule_free},
        Case{.name = "NarrowMoments", .dtype = DType::bf16, .moments = optim::Moments::bf16},
        Case{.name = "EightBits", .dtype = DType::bf16, .accumulation = 2, .fp8 = true},
        Case{.name = "Wgmma", .dtype = DType::bf16, .wgmma = kernels::WgmmaUse::always},
        Case{.name = "SharedStatesNccl", .stage = 1, .world = 2, .nccl = true},
        Case{.name = "SharedGradients", .stage = 2, .dtype = DType::bf16, .accumulation = 3},
        Case{.name = "SharedGradientsOfTwo",
             .stage = 2,
             .world = 2,
             .family = Family::llama,
             .dtype = DType::f16,
             .accumulation = 2},
        Case{.name = "SharedGradientsNccl", .stage = 2, .world = 2, .nccl = true},
        Case{.name = "SharedWeights", .stage = 3, .dtype = DType::bf16, .accumulation = 2},
        Case{.name = "SharedWeightsNccl",
             .stage = 3,
             .world = 2,
             .family = Family::llama,
             .recompute_every = 1,
             .every_schedule = true,
             .nccl = true}),
    [](const auto& info) { return std::string(info.param.name); });

// The work of the update runs in a skipped step too.
TEST(GpuGraphs, ASkippedStep_ChangesNoStateOfAWholeParameter) {
  for (const auto rule :
       {optim::OptimizerKind::muon, optim::OptimizerKind::lamb, optim::OptimizerKind::adafactor}) {
    const Case c{.stage = 1, .dtype = DType::f16, .scale_power = 20, .rule = rule};
    comm::run_local_ranks(
        1, {.device = kGpu, .seed = 5, .num_threads = 1}, [&](comm::World& world) {
          const auto model = zero::test::make_tiny_model(c.family, c.dropout);
          zero::Engine engine(*model, config_of(c, true), world);
          const auto has_states = [&] {
            double sum = 0.0;
            for (const auto& [name, parameter] : model->named_parameters()) {
              for (const auto& [kind, state] : zero::test::states_of(engine, name)) {
                for (const double value : state.to_vector<double>()) sum += std::fabs(value);
              }
            }
            return sum > 0.0;
          };
          for (zero::StepOutcome outcome{}; outcome != zero::StepOutcome::applied;) {
            const nn::Batch batch = make_batch(c.family, engine.state().steps);
            engine.run_passes({&batch, 1});
            outcome = engine.step().outcome;
            ASSERT_EQ(has_states(), outcome == zero::StepOutcome::applied) << name_of(rule);
          }
          EXPECT_GT(engine.state().skipped(), 2);
          EXPECT_GT(engine.usage().graphs.step_parts, 0);
        });
  }
}

// Memory that the step's graphs read has moved in that step, and moves back in the next one.
TEST(GpuGraphs, AStepWithMoreMicroBatches_IsRecordedAnew) {
  const Case c{.name = "LongerStep", .longer_step = 2};
  const Outcome graphs = run(c, true, 5);
  EXPECT_EQ(graphs, run(c, false, 5));
  EXPECT_EQ(graphs.use.step_parts, 2 * 4);
}

// Tasks of the host, which a trace of gathers is made of, are no part of a graph.
TEST(GpuGraphs, TraceOfARecordedRun_HasTheGathersOfTheFirstStep) {
  TraceRecorder trace;
  const Case c{.stage = 3};
  comm::run_local_ranks(1, {.device = kGpu, .num_threads = 1, .trace = &trace},
                        [&](comm::World& world) {
                          nn::Gpt2 model(zero::test::tiny_config());
                          zero::Engine engine(model, config_of(c, true), world);
                          for (int64_t step = 0; step < 3; ++step) {
                            trace.clear();
                            const nn::Batch batch = make_batch(step);
                            engine.run_passes({&batch, 1});
                            engine.step();
                            world.context().synchronize();
                            int64_t prefetches = 0;
                            for (const TraceEvent& event : trace.events()) {
                              prefetches += event.kind == TraceKind::prefetch ? 1 : 0;
                            }
                            EXPECT_EQ(prefetches > 0, step == 0) << step;
                          }
                        });
}

// Draws a random number that no op of autograd draws, or one that others do not.
struct Drawing : nn::Gpt2 {
  explicit Drawing(bool always) : Gpt2(zero::test::tiny_config()), always_(always) {}
  Tensor loss(const nn::Batch& batch) override {
    if (always_ || batch.global_micro_batch == 0) {
      Context::current().random().next(Purpose::dropout, hash_text("drawing"));
    }
    return Gpt2::loss(batch);
  }
  const bool always_;
};

TEST(GpuGraphs, RandomNumbersThatALaunchWouldRepeat_AreRefused) {
  const auto message = [](bool always) {
    std::string text;
    comm::run_local_ranks(1, {.device = kGpu, .num_threads = 1}, [&](comm::World& world) {
      Drawing model(always);
      zero::Engine engine(model, config_of({}, true), world);
      try {
        for (int64_t step = 0; step < 2; ++step) {
          const nn::Batch batch = make_batch(step);
          engine.run_passes({&batch, 1});
          engine.step();
        }
      } catch (const ConfigError& error) {
        text = error.what();
      }
    });
    return text;
  };
  EXPECT_THAT(message(true), HasSubstr("random numbers of dropout and attention alone"));
  EXPECT_THAT(message(false), HasSubstr("as many random numbers at the same places"));
}

TEST(GpuGraphs, WhatCannotBeRecorded_IsRefusedByName) {
  comm::ConnectOptions connect{.device = kGpu, .seed = 5, .num_threads = 1};
  int ranks = 1;
  const auto message = [&](const std::function<void(zero::EngineConfig&)>& change,
                           int64_t longer = 0) {
    std::string text;
    comm::run_local_ranks(ranks, connect, [&](comm::World& world) {
      try {
        zero::EngineConfig config = config_of({}, true);
        change(config);
        nn::Gpt2 model(zero::test::tiny_config());
        zero::Engine engine(model, config, world, {.dynamic_model = longer < 0});
        for (int64_t step = 0; step < 3; ++step) {
          const nn::Batch batch = make_batch(step, 2, 9 + step * longer);
          engine.run_passes({&batch, 1});
          engine.step();
        }
      } catch (const Error& error) {
        if (world.is_main()) text = error.what();
      }
    });
    return text;
  };
  const auto nothing = [](zero::EngineConfig&) {};
  EXPECT_EQ(message(nothing), "");
  EXPECT_THAT(message(nothing, 1), HasSubstr("batches of one shape: input_ids was"));
  EXPECT_THAT(message(nothing, -1), HasSubstr("a dynamic model"));
  EXPECT_THAT(message([](auto& config) { config.determinism = zero::Determinism::world; }),
              HasSubstr("\"determinism\": \"world\""));
  EXPECT_THAT(message([](auto& config) {
                config.zero.stage = 3;
                config.zero.offload_param.device = zero::OffloadDevice::cpu;
              }),
              HasSubstr("does not work with offload_param"));
  EXPECT_THAT(message([](auto& config) {
                config.gradient.reduce_schedule = zero::ReduceSchedule::micro_step;
              }),
              HasSubstr("\"boundary\" on stages 0 and 1"));
  EXPECT_THAT(message([](auto& config) { config.wall_clock_breakdown = true; }),
              HasSubstr("wall_clock_breakdown"));
  EXPECT_THAT(message([](auto& config) { config.recompute.cpu_checkpointing = true; }),
              HasSubstr("cpu_checkpointing"));
  EXPECT_THAT(message([](auto& config) {
                config.recompute.every_blocks = 1;
                config.recompute.contiguous_memory_optimization = true;
              }),
              HasSubstr("contiguous_memory_optimization"));
  EXPECT_THAT(message([](auto& config) {
                config.zero.stage = 1;
                config.zero.offload_optimizer.device = zero::OffloadDevice::cpu;
              }),
              HasSubstr("does not work with offload_optimizer"));
  connect.device = kCpu;
  EXPECT_THAT(message(nothing), HasSubstr("needs a GPU"));
  connect.device = kGpu;
  connect.device_collectives = comm::DeviceCollectives::staged;
  ranks = 2;
  EXPECT_THAT(message([](auto& config) { config.zero.stage = 3; }),
              HasSubstr("collectives of local go through the host, which no graph can hold"));
}

}  // namespace graph_cuda_test
}  // namespace zinc
