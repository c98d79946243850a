// EngineOptions::computes_only: an engine without gradients, states and update.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "comm/phantom/phantom.h"
#include "core/error.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace computing_engine_test {

using test::Family;
using test::make_batch;
using ::testing::AllOf;
using ::testing::HasSubstr;

EngineConfig config_of(int stage, DType dtype = DType::f32) {
  EngineConfig config;
  config.batch = {.micro_batch = 2};
  config.precision.dtype = dtype;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 0;
  return config;
}

template <class Body>
void on_ranks(int world, const Body& body) {
  comm::run_local_ranks(world, {.seed = 5, .num_threads = 1}, body);
}

void set_mesh(comm::World& world, const comm::Mesh& mesh) {
  comm::RankSettings settings = world.settings();
  settings.mesh = mesh;
  world.configure(settings);
}

template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// --- what it computes

struct Figures {
  double loss = 0.0;
  std::vector<float> weights;
  friend bool operator==(const Figures&, const Figures&) = default;
};

// The loss of a batch of rank 0, and all weights.
Figures figures_of(Family family, int world, int stage, DType dtype, bool computes, bool frozen) {
  Figures figures;
  on_ranks(world, [&](comm::World& ranks) {
    const auto model = test::make_tiny_model(family);
    if (frozen) model->freeze("*");
    Engine engine(*model, config_of(stage, dtype), ranks, {.computes_only = computes});
    const double loss = engine.evaluate(make_batch(family, ranks.rank())).loss_sum;
    const std::vector<float> weights = test::weights_of(engine);
    if (ranks.rank() == 0) figures = {loss, weights};
  });
  return figures;
}

TEST(ComputingEngine, OnEveryStageAndWorld_ComputesWhatATrainingOneDoes) {
  for (const Family family :
       {Family::gpt2, Family::llama, Family::t5, Family::roberta, Family::bloom}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Figures trained = figures_of(family, 1, 0, dtype, false, false);
      EXPECT_GT(trained.loss, 0.0);
      for (const int world : {1, 2, 3}) {
        for (const int stage : {0, 1, 3}) {
          SCOPED_TRACE(testing::Message() << name_of(family) << ", " << zinc::name_of(dtype)
                                          << ", stage " << stage << ", " << world << " ranks");
          const Figures computed = figures_of(family, world, stage, dtype, true, false);
          EXPECT_EQ(computed.loss, trained.loss);
          // A training engine shows its master weights, which are not rounded.
          if (dtype == DType::f32) {
            EXPECT_EQ(computed.weights, trained.weights);
          }
          EXPECT_EQ(figures_of(family, world, stage, dtype, true, true), computed);
        }
      }
    }
  }
}

TEST(ComputingEngine, OfADynamicModel_AndInAPipeline_ComputesTheSame) {
  const double alone = figures_of(Family::llama, 1, 0, DType::f32, true, false).loss;
  on_ranks(2, [&](comm::World& world) {
    nn::Llama model(test::tiny_llama_config());
    Engine engine(model, config_of(3), world, {.computes_only = true, .dynamic_model = true});
    EXPECT_EQ(engine.evaluate(make_batch(0)).loss_sum, alone);
  });
  for (const int interleave : {1, 2}) {
    on_ranks(2, [&](comm::World& world) {
      set_mesh(world, {.pipe = 2});
      nn::Llama model(test::tiny_llama_config());
      EngineConfig config = config_of(0);
      config.batch.accumulation = 2;
      config.pipeline.interleave = interleave;
      Engine engine(model, config, world, {.computes_only = true});
      EXPECT_TRUE(engine.step_program().program.pipeline.empty());
      EXPECT_EQ(engine.evaluate(make_batch(0)).loss_sum, alone);
    });
  }
}

TEST(ComputingEngine, AmongRanksThatShareLayersOrSequences_ComputesWhatATrainingOneDoes) {
  for (const comm::Mesh& mesh : {comm::Mesh{.tensor = 2}, comm::Mesh{.sequence = 2}}) {
    for (const int stage : {0, 3}) {
      on_ranks(4, [&](comm::World& world) {
        set_mesh(world, mesh);
        std::vector<double> losses;
        for (const bool computes : {false, true}) {
          nn::Llama model(test::tiny_llama_config());
          Engine engine(model, config_of(stage), world, {.computes_only = computes});
          losses.push_back(engine.evaluate(make_batch(0, 2, 8)).loss_sum);
        }
        EXPECT_GT(losses[0], 0.0);
        EXPECT_EQ(losses[0], losses[1]);
      });
    }
  }
}

// Settings of steps are not looked at: a reference model may take the configuration of the run.
TEST(ComputingEngine, WithTheConfigurationOfATraining_HasNothingOfIt) {
  const double alone = figures_of(Family::gpt2, 1, 0, DType::bf16, true, false).loss;
  on_ranks(2, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    EngineConfig config = config_of(3, DType::bf16);
    config.batch.accumulation = 4;
    config.pass_order = PassOrder::vertical;
    config.recompute.every_blocks = 1;
    config.recompute.cpu_checkpointing = true;
    config.zero.offload_optimizer = {.device = OffloadDevice::nvme,
                                     .nvme_path = testing::TempDir()};
    config.zero.resident_memory = 1 << 20;
    config.zero.offload_param.device = OffloadDevice::cpu;
    Engine engine(model, config, world, {.computes_only = true});
    EXPECT_EQ(engine.evaluate(make_batch(0)).loss_sum, alone);
    EXPECT_EQ(engine.config().batch.accumulation, 1);
    EXPECT_EQ(engine.config().zero.offload_optimizer.device, OffloadDevice::none);
    EXPECT_EQ(engine.usage().swap.bytes_read, 0);
    EXPECT_GT(world.context().allocator().report().at(Tier::pinned_host, Label::parameters).live,
              0);
  });
}

TEST(ComputingEngine, ItsProgram_HasAnEvaluationAlone) {
  on_ranks(2, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    Engine engine(model, config_of(3), world, {.computes_only = true});
    const Program& program = engine.step_program().program;
    EXPECT_TRUE(program.bodies.empty());
    EXPECT_EQ(program.step.size(), 2u);
    int gathers = 0;
    for (const Place& place : program.evaluation) {
      for (const auto* ops : {&place.before, &place.after}) {
        for (const Op& op : *ops) {
          EXPECT_TRUE(op.kind == OpKind::gather || op.kind == OpKind::release);
          gathers += op.kind == OpKind::gather ? 1 : 0;
        }
      }
    }
    EXPECT_GE(gathers, 6);  // embeddings, blocks, last norm
    EXPECT_EQ(engine.step_program().record.reduce_order, std::vector<int>());
    EXPECT_EQ(engine.step_program().record.use_order.front(), 0);
  });
}

// --- memory

struct Memory {
  MemoryReport report;
  int64_t weights = 0;  // live bytes of weights between passes
};

// An evaluation and a prediction.
Memory use(Engine& engine, nn::Model& model) {
  engine.evaluate(make_batch(0));
  engine.predict([&] { return model.loss(make_batch(1)); });
  MemoryReport report = engine.world().context().allocator().report();
  return {report, report.at(Tier::device, Label::parameters).live};
}

Memory real_memory(int world, int stage, DType dtype) {
  Memory memory;
  on_ranks(world, [&](comm::World& ranks) {
    nn::Gpt2 model(test::tiny_config());
    Engine engine(model, config_of(stage, dtype), ranks, {.computes_only = true});
    const Memory found = use(engine, model);
    if (ranks.rank() == 0) memory = found;
  });
  return memory;
}

Memory planned_memory(int world, int stage, DType dtype) {
  const Device meta{.meta = true};
  comm::World ranks(
      {.rank = 0, .size = world, .local_rank = 0, .local_size = 1, .source = "phantom"},
      comm::make_phantom({.size = world, .imitates = world == 1 ? "single" : "local"}),
      std::make_unique<Context>(
          ContextOptions{.device = meta,
                         .seed = 5,
                         .num_threads = 1,
                         .execution = ContextOptions::Execution::inline_all}));
  const ContextScope scope(ranks.context());
  nn::Gpt2 model(test::tiny_config());
  Engine engine(model, config_of(stage, dtype), ranks, {.computes_only = true});
  return use(engine, model);
}

TEST(ComputingEngine, TakesWeightsAlone_AndWhatItsPlanSays) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int world : {1, 2}) {
      for (const int stage : {0, 1, 2, 3}) {
        SCOPED_TRACE(testing::Message()
                     << zinc::name_of(dtype) << ", stage " << stage << ", " << world << " ranks");
        const Memory real = real_memory(world, stage, dtype);
        const Memory plan = planned_memory(world, stage, dtype);
        for (const Tier tier : {Tier::device, Tier::pinned_host}) {
          EXPECT_EQ(real.report.at(tier).peak, plan.report.at(tier).peak);
          for (int label = 0; label < kNumLabels; ++label) {
            EXPECT_EQ(real.report.at(tier, static_cast<Label>(label)).peak,
                      plan.report.at(tier, static_cast<Label>(label)).peak)
                << "label " << label;
          }
          EXPECT_EQ(real.report.at(tier, Label::gradients).peak, 0);
          EXPECT_EQ(real.report.at(tier, Label::optimizer).peak, 0);
        }
        int64_t weights = 0;
        nn::Gpt2 model(test::tiny_config());
        for (const ShardGroup& group : make_shard_groups(model, world, 0, {}, {.trains = false})) {
          weights += group.numel() * size_of(dtype);
        }
        EXPECT_EQ(real.weights, stage == 3 ? weights / world : weights);
      }
    }
  }
}

// --- what it refuses, and what it does besides

class NoState final : public StateSource {
 public:
  explicit NoState(nn::Model& model) : model_(model) {}
  const TrainingState& state() const override { return state_; }
  std::optional<Shape> shape_of(std::string_view name, std::string_view kind) const override {
    if (kind != kWeightsKind) return std::nullopt;
    return model_.parameter(name).whole_shape();
  }
  void read(std::string_view, std::string_view, int64_t, View out) const override {
    std::fill_n(static_cast<float*>(out.data()), out.numel(), 0.25f);
  }

 private:
  nn::Model& model_;
  TrainingState state_;
};

TEST(ComputingEngine, CallsOfATraining_AreRefusedWithTheCure) {
  on_ranks(2, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    Engine engine(model, config_of(3), world, {.computes_only = true});
    const nn::Batch batch = make_batch(0);
    const NoState state(model);
    const std::vector<std::pair<std::string, std::string>> refusals{
        {"forward", refusal([&] { engine.forward(batch); })},
        {"backward", refusal([&] { engine.backward({}); })},
        {"step", refusal([&] { engine.step(); })},
        {"run_passes", refusal([&] {
           engine.run_passes({&batch, 1});
         })},
        {"state", refusal([&] { engine.state(); })},
        {"learning_rate", refusal([&] { engine.learning_rate(); })},
        {"set_learning_rate", refusal([&] { engine.set_learning_rate(0.1); })},
        {"optimizer_state",
         refusal([&] { engine.optimizer_state("transformer.wte.weight", "exp_avg"); })},
        {"gradient", refusal([&] { engine.gradient("transformer.wte.weight"); })},
        {"read_own(Own::weights_and_states)",
         refusal([&] { engine.read_own(Own::weights_and_states, {}); })},
        {"import_state", refusal([&] { engine.import_state(state); })},
        {"NoSync", refusal([&] { const Engine::NoSync no_sync(engine); })}};
    for (const auto& [call, message] : refusals) {
      EXPECT_THAT(message,
                  AllOf(HasSubstr("engine." + call),
                        HasSubstr("this engine only computes, without gradients, optimizer "
                                  "states and update; make one without "
                                  "EngineOptions::computes_only")));
    }
    EXPECT_GT(engine.evaluate(batch).mean(), 0.0);
    EXPECT_EQ(engine.moment().substr(0, 10), "evaluation");
    engine.finish_update();
  });
  on_ranks(1, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    EXPECT_THAT(refusal([&] {
                  Engine(model, config_of(0), world,
                         {.computes_only = true,
                          .parameter_groups = {{.name = "all", .parameters = {}, .hyper = {}}}});
                }),
                HasSubstr("leave optimizer, parameter_groups and gradient_sums out"));
  });
}

TEST(ComputingEngine, ReadsAndWritesWeights) {
  for (const int stage : {0, 3}) {
    on_ranks(2, [&](comm::World& world) {
      SCOPED_TRACE(stage);
      nn::Gpt2 model(test::tiny_config());
      Engine engine(model, config_of(stage), world, {.computes_only = true});
      const std::string name = "transformer.ln_f.weight";
      const double before = engine.evaluate(make_batch(0)).mean();
      engine.set_parameter(name, Tensor::full({24}, 0.5));
      EXPECT_EQ(engine.parameter(name).to_vector<float>(), std::vector<float>(24, 0.5f));
      EXPECT_NE(engine.evaluate(make_batch(0)).mean(), before);
      engine.edit({name}, [&](EditedParameters& values) { values.at(name).fill(1.0); });
      EXPECT_EQ(engine.evaluate(make_batch(0)).mean(), before);
      int64_t own = 0;
      engine.read_own(Own::weights, [&](const OwnPiece& piece) { own += piece.values.numel(); });
      EXPECT_GT(own, model.num_parameters() / 3);
      EXPECT_LT(own, 2 * model.num_parameters() / 3);
      EXPECT_EQ(engine.usage().own.trained, 0);
      const NoState state(model);
      engine.import_state(state, {.optimizer_states = false, .counters = false});
      EXPECT_EQ(engine.parameter(name).to_vector<float>(), std::vector<float>(24, 0.25f));
      engine.release_to_model();
      EXPECT_EQ(model.parameter(name).data().to_vector<float>(), std::vector<float>(24, 0.25f));
    });
  }
}

TEST(ComputingEngine, AtItsEnd_LeavesTheModelItsWeights) {
  on_ranks(2, [&](comm::World& world) {
    nn::Gpt2 model(test::tiny_config());
    double before = 0.0;
    {
      Engine engine(model, config_of(1), world, {.computes_only = true});
      before = engine.evaluate(make_batch(0)).loss_sum;
    }
    EXPECT_TRUE(model.parameter("transformer.wte.weight").requires_grad());
    // And another engine may train them.
    Engine engine(model, config_of(1), world);
    EXPECT_EQ(engine.evaluate(make_batch(0)).loss_sum, before);
    engine.backward(engine.forward(make_batch(world.rank())));
    EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
  });
}

// The reference model of a preference run beside the model that is trained.
TEST(ComputingEngine, BesideOneThatTrains_KeepsItsFigures) {
  on_ranks(2, [&](comm::World& world) {
    nn::Gpt2 trained(test::tiny_config()), reference(test::tiny_config());
    EngineConfig config = config_of(3);
    config.gradient.reduce_algorithm = ReduceAlgorithm::native;
    Engine trains(trained, config, world);
    Engine computes(reference, config, world, {.computes_only = true});
    const double first = computes.evaluate(make_batch(7)).loss_sum;
    EXPECT_EQ(trains.evaluate(make_batch(7)).loss_sum, first);
    for (int64_t step = 0; step < 2; ++step) {
      trains.backward(trains.forward(make_batch(2 * step + world.rank())));
      EXPECT_EQ(computes.evaluate(make_batch(7)).loss_sum, first);
      EXPECT_EQ(trains.step().outcome, StepOutcome::applied);
    }
    EXPECT_NE(trains.evaluate(make_batch(7)).loss_sum, first);
    EXPECT_EQ(computes.evaluate(make_batch(7)).loss_sum, first);
  });
}

}  // namespace computing_engine_test
}  // namespace zinc::zero
