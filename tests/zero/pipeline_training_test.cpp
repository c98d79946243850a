// Training in a pipeline gives what a run without one gives: the same bits where no parameter lies
// on several ranks of it, and otherwise the same within rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <mutex>
#include <optional>
#include <set>

#include "autograd/ops/binary.h"
#include "autograd/ops/reduce.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "core/philox.h"
#include "optim/factory.h"
#include "parallel/pipeline_cut.h"
#include "tests/zero/mesh_models.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace pipeline_training_test {

using parallel::PipelineOp;
using parallel::PipelineSchedule;
using testing::HasSubstr;

constexpr int kSteps = 3;

enum class Kind : uint8_t {
  gpt2,
  gpt2_untied,
  unused,
  llama,
  neox,
  chatglm,
  t5,
  t5_untied,
  roberta
};

// The first block has a parameter that the loss does not reach.
struct WithUnused : nn::Gpt2 {
  explicit WithUnused(const nn::Gpt2Config& config) : nn::Gpt2(config) {}
  static nn::Module& first_block(nn::Module& model) {
    const std::vector<nn::Module*> all = model.modules();
    return **std::ranges::find_if(all, [](const nn::Module* one) { return one->is_shard_unit(); });
  }
  nn::Parameter unused{first_block(*this), "unused", {8}, autograd::Initializer::normal(1.0)};
};

std::unique_ptr<nn::Model> make(Kind kind) {
  switch (kind) {
    case Kind::gpt2:
    case Kind::gpt2_untied:
    case Kind::unused: {
      nn::Gpt2Config config = test::tiny_config(0.1);
      config.num_heads = 4;
      config.tie_word_embeddings = kind == Kind::gpt2;
      if (kind == Kind::unused) return std::make_unique<WithUnused>(config);
      return std::make_unique<nn::Gpt2>(config);
    }
    case Kind::llama:
      return test::make_tiny_model(test::Family::llama);
    case Kind::neox:
      return test::make_mesh_neox();
    case Kind::chatglm:
      return test::make_mesh_chatglm();
    case Kind::t5:
      return test::make_tiny_model(test::Family::t5);
    case Kind::t5_untied: {
      nn::T5Config config = test::tiny_t5_config(0.1);
      config.tie_word_embeddings = false;
      return std::make_unique<nn::T5>(config);
    }
    case Kind::roberta:
      return test::make_tiny_model(test::Family::roberta);
  }
  return nullptr;
}

nn::Batch batch_of(Kind kind, int64_t index) {
  if (kind == Kind::t5 || kind == Kind::t5_untied) return test::make_batch(test::Family::t5, index);
  if (kind == Kind::roberta) return test::make_batch(test::Family::roberta, index);
  return test::make_batch(index, 2, 8);
}

struct Trained {
  std::vector<double> figures;  // loss and norm of every step, then the loss of an evaluation
  std::vector<double> values;   // weights, moments and gradients
};

// Bits: a gradient of a skipped step is not a number, which equals nothing.
bool operator==(const Trained& a, const Trained& b) {
  const auto bits = [](double value) { return std::bit_cast<uint64_t>(value); };
  return a.figures == b.figures && std::ranges::equal(a.values, b.values, {}, bits, bits);
}

struct Ranks {
  int pipe = 1;
  int data = 1;
  int tensor = 1;
  int sequence = 1;
  int all() const { return pipe * data * tensor * sequence; }
};

struct Way {
  Kind kind = Kind::gpt2_untied;
  Ranks ranks{};
  int stage = 1;
  int64_t accumulation = 4;  // of each data rank
  DType dtype = DType::f32;
  ReduceSchedule reduce = ReduceSchedule::boundary;
  std::function<void(EngineConfig&)> change{};
  bool shuffled = false;
};

EngineConfig config_of(const Way& run) {
  EngineConfig config = test::training_config(run.accumulation, run.dtype, run.reduce);
  config.zero.stage = run.stage;
  if (run.stage >= 2) config.gradient.reduce_schedule = ReduceSchedule::micro_step;
  if (run.change) run.change(config);
  return config;
}

void set_mesh(comm::World& world, const Ranks& ranks) {
  comm::RankSettings settings = world.settings();
  settings.mesh.pipe = ranks.pipe;
  settings.mesh.tensor = ranks.tensor;
  settings.mesh.sequence = ranks.sequence;
  world.configure(settings);
}

std::string_view first_state_of(const nn::Parameter& parameter, const EngineConfig& config) {
  const auto optimizer = optim::make_optimizer(config.optimizer);
  const bool is_matrix = optimizer->whole_rule() != nullptr &&
                         parameter.name().find(".h.") != std::string::npos &&
                         optimizer->whole_rule()->takes(parameter);
  return is_matrix ? "momentum_buffer" : "exp_avg";
}

void pass(Engine& engine, std::span<const nn::Batch> batches) {
  const auto together = static_cast<size_t>(engine.config().batches_per_call());
  for (size_t i = 0; i < batches.size(); i += together) {
    engine.run_passes(batches.subspan(i, together));
  }
}

Trained train(const Way& run) {
  Trained result;
  std::mutex mutex;
  comm::ConnectOptions options;
  options.seed = 7;
  options.num_threads = 1;
  if (run.shuffled) {
    options.execution = ContextOptions::Execution::shuffled;
    options.shuffle_seed = 11;
  }
  comm::run_local_ranks(run.ranks.all(), options, [&](comm::World& world) {
    set_mesh(world, run.ranks);
    const std::unique_ptr<nn::Model> model = make(run.kind);
    Engine engine(*model, config_of(run), world);
    Trained mine;
    const auto keep = [&](const Tensor& tensor) {
      const auto values = tensor.to_vector<double>();
      mine.values.insert(mine.values.end(), values.begin(), values.end());
    };
    for (int step = 0; step < kSteps; ++step) {
      std::vector<nn::Batch> batches;
      for (int64_t m = 0; m < run.accumulation; ++m) {
        const int64_t index =
            (step * run.accumulation + m) * world.data().size() + world.data().rank();
        batches.push_back(batch_of(run.kind, index));
      }
      pass(engine, batches);
      if (step == 0) {
        for (const auto& [name, parameter] : model->named_parameters()) keep(engine.gradient(name));
      }
      const StepResult done = engine.step();
      const bool skipped = done.outcome == StepOutcome::skipped_overflow;
      mine.figures.insert(mine.figures.end(), {done.loss, skipped ? -1.0 : done.gradient_norm});
    }
    Evaluation evaluation;
    for (const Evaluation& part :
         gather(engine, engine.evaluate(batch_of(run.kind, 100 + world.data().rank())))) {
      evaluation += part;
    }
    mine.figures.push_back(evaluation.mean());
    for (const auto& [name, parameter] : model->named_parameters()) {
      keep(engine.parameter(name));
      keep(engine.optimizer_state(name, first_state_of(*parameter, engine.config())));
    }
    const std::lock_guard lock(mutex);
    if (result.values.empty()) result = mine;
    // Every rank says the same, to the bit.
    EXPECT_TRUE(result == mine) << "rank " << world.rank();
  });
  return result;
}

// sqrt(sum (a - b)^2 / sum b^2)
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double apart = 0.0, size = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(apart / size);
}

class UntiedPipeline : public testing::TestWithParam<std::tuple<Kind, Ranks, int>> {};

TEST_P(UntiedPipeline, HasTheBitsOfARunWithoutOne) {
  const auto& [kind, ranks, stage] = GetParam();
  const Way run{.kind = kind, .ranks = ranks, .stage = stage};
  Way plain = run;
  plain.ranks.pipe = 1;
  EXPECT_TRUE(train(run) == train(plain));
}

INSTANTIATE_TEST_SUITE_P(Models, UntiedPipeline,
                         testing::Combine(testing::Values(Kind::gpt2_untied, Kind::llama,
                                                          Kind::neox, Kind::chatglm,
                                                          Kind::t5_untied),
                                          testing::Values(Ranks{.pipe = 2}), testing::Values(1)),
                         [](const auto& info) { return testing::PrintToString(info.index); });
INSTANTIATE_TEST_SUITE_P(Stages, UntiedPipeline,
                         testing::Combine(testing::Values(Kind::gpt2_untied),
                                          testing::Values(Ranks{.pipe = 4},
                                                          Ranks{.pipe = 2, .data = 2}),
                                          testing::Values(0, 1, 2)),
                         [](const auto& info) { return testing::PrintToString(info.index); });
INSTANTIATE_TEST_SUITE_P(Meshes, UntiedPipeline,
                         testing::Combine(testing::Values(Kind::gpt2_untied),
                                          testing::Values(Ranks{.pipe = 2, .tensor = 2},
                                                          Ranks{.pipe = 2, .sequence = 2},
                                                          Ranks{.pipe = 2, .data = 2, .tensor = 2}),
                                          testing::Values(1)),
                         [](const auto& info) { return testing::PrintToString(info.index); });

void muon(EngineConfig& config) {
  config.optimizer.kind = optim::OptimizerKind::muon;
  config.optimizer.matrix_hyper = {.lr = 1e-2, .weight_decay = 0.1, .momentum = 0.9};
}

// Other settings of a configuration change no bit either.
TEST(PipelineBits, AreThoseWithoutOne_WhateverElseIsAsked) {
  const std::vector<std::pair<const char*, Way>> runs{
      {"gpipe",
       {.change =
            [](EngineConfig& config) { config.pipeline.schedule = PipelineSchedule::gpipe; }}},
      {"recomputed", {.change = [](EngineConfig& config) { config.recompute.every_blocks = 2; }}},
      {"bf16", {.dtype = DType::bf16}},
      {"f16, with skipped steps", {.dtype = DType::f16}},
      {"one micro-batch", {.accumulation = 1}},
      {"fewer micro-batches than ranks", {.ranks = {.pipe = 4}, .accumulation = 3}},
      {"states in host memory",
       {.change =
            [](EngineConfig& config) {
              config.zero.offload_optimizer.device = OffloadDevice::cpu;
              config.overlap_update = true;
            }}},
      {"no clipping, states in host memory",
       {.change =
            [](EngineConfig& config) {
              config.gradient.clipping = 0.0;
              config.zero.offload_optimizer.device = OffloadDevice::cpu;
              config.overlap_update = true;
            }}},
      {"world",
       {.reduce = ReduceSchedule::micro_step,
        .change = [](EngineConfig& config) { config.determinism = Determinism::world; }}},
      {"uniform",
       {.change =
            [](EngineConfig& config) {
              config.pipeline.partition = parallel::PipelinePartition::uniform;
            }}},
      {"shuffled", {.ranks = {.pipe = 2}, .shuffled = true}},
      {"matrices", {.dtype = DType::f16, .change = muon}},
      {"matrices in host memory",
       {.stage = 2,
        .change =
            [](EngineConfig& config) {
              muon(config);
              config.zero.offload_optimizer.device = OffloadDevice::cpu;
            }}},
      {"matrices on the last rank alone",
       {.change =
            [](EngineConfig& config) {
              muon(config);
              config.optimizer.muon.exclude = {"*.h.0.*", "*.h.1.*", "*.h.2.*", "*.attn.*"};
            }}},
  };
  for (const auto& [name, given] : runs) {
    Way run = given;
    if (run.ranks.pipe == 1) run.ranks = {.pipe = 2, .data = 2};
    Way plain = run;
    plain.ranks.pipe = 1;
    plain.shuffled = false;
    EXPECT_TRUE(train(run) == train(plain)) << name;
  }
}

void interleave(EngineConfig& config) { config.pipeline.interleave = 2; }
void split(EngineConfig& config) { config.pipeline.schedule = PipelineSchedule::zero_bubble; }

// Orders in which a rank has several parts, or makes gradients of weights apart.
class PipelineOrders : public testing::TestWithParam<void (*)(EngineConfig&)> {};

TEST_P(PipelineOrders, HaveTheBitsOfARunWithoutOne) {
  const auto order = GetParam();
  const auto with = [&](void (*more)(EngineConfig&)) {
    return [order, more](EngineConfig& config) {
      order(config);
      more(config);
    };
  };
  std::vector<std::pair<const char*, Way>> runs{
      {"two ranks", {.ranks = {.pipe = 2}}},
      {"bf16", {.ranks = {.pipe = 2}, .dtype = DType::bf16}},
      {"f16, with skipped steps", {.dtype = DType::f16}},
      {"tensor ranks", {.ranks = {.pipe = 2, .tensor = 2}}},
      {"sequence ranks", {.ranks = {.pipe = 2, .sequence = 2}}},
      {"another model", {.kind = Kind::llama}},
      {"an unused parameter", {.kind = Kind::unused}},
      {"every micro-batch reduced", {.stage = 0, .reduce = ReduceSchedule::micro_step}},
      {"world", {.reduce = ReduceSchedule::micro_step, .change = with([](EngineConfig& config) {
                                                         config.determinism = Determinism::world;
                                                       })}},
      {"states in host memory", {.change = with([](EngineConfig& config) {
                                   config.zero.offload_optimizer.device = OffloadDevice::cpu;
                                   config.overlap_update = true;
                                 })}},
      {"shuffled", {.ranks = {.pipe = 2}, .shuffled = true}}};
  for (const int stage : {0, 1, 2}) runs.push_back({"stage", {.stage = stage}});
  for (const auto& [name, given] : runs) {
    Way run = given;
    if (run.ranks.pipe == 1) run.ranks = {.pipe = 2, .data = 2};
    if (!run.change) run.change = order;
    Way plain = run;
    plain.ranks.pipe = 1;
    plain.shuffled = false;
    plain.change = [&](EngineConfig& config) {
      run.change(config);
      config.pipeline = {};
    };
    EXPECT_TRUE(train(run) == train(plain)) << name << ", stage " << run.stage;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PipelineOrders, testing::Values(&interleave, &split),
                         [](const auto& info) {
                           return info.index == 0 ? "Interleaved" : "Split";
                         });

class TiedPipeline : public testing::TestWithParam<Kind> {};

// f64: sums of 10^2 to 10^4 terms in another order are 1e-14 apart; AdamW divides small differences
// by small roots, which costs some digits.
TEST_P(TiedPipeline, GivesWhatARunWithoutOneGives) {
  const Way plain{.kind = GetParam(), .ranks = {.data = 2}, .dtype = DType::f64};
  const Trained one = train(plain);
  for (const int pipe : {2, 3}) {
    Way run = plain;
    run.ranks.pipe = pipe;
    const Trained piped = train(run);
    EXPECT_LT(distance(piped.figures, one.figures), 1e-12) << pipe;
    EXPECT_LT(distance(piped.values, one.values), 1e-10) << pipe;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TiedPipeline, testing::Values(Kind::gpt2, Kind::t5, Kind::roberta),
                         [](const auto& info) { return testing::PrintToString(info.index); });

// The sum over an embedding and a head does not depend on how many ranks lie between them, nor on
// the stage.
TEST(TiedPipelineBits, AreThoseOfEveryLengthAndStage) {
  const Trained two = train({.kind = Kind::gpt2, .ranks = {.pipe = 2}});
  EXPECT_TRUE(train({.kind = Kind::gpt2, .ranks = {.pipe = 4}}) == two);
  Way run{
      .kind = Kind::gpt2, .ranks = {.pipe = 2, .data = 2}, .reduce = ReduceSchedule::micro_step};
  run.stage = 0;
  const Trained first = train(run);
  for (const int stage : {1, 2}) {
    run.stage = stage;
    EXPECT_TRUE(train(run) == first) << stage;
  }
}

// T5 embeds the texts of both stacks in its first stage: no other stage but the head has the table,
// wherever the model is cut.
TEST(TiedPipelineBits, OfT5_AreThoseOfEveryLengthAndCut) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t accumulation : {1, 4}) {
      Way run{.kind = Kind::t5, .accumulation = accumulation, .dtype = dtype};
      std::optional<Trained> first;
      for (const int pipe : {2, 3, 4}) {
        for (const auto partition :
             {parallel::PipelinePartition::best, parallel::PipelinePartition::uniform}) {
          for (const auto schedule :
               {PipelineSchedule::one_forward_one_backward, PipelineSchedule::zero_bubble}) {
            run.ranks.pipe = pipe;
            run.change = [&](EngineConfig& config) {
              config.pipeline.partition = partition;
              config.pipeline.schedule = schedule;
            };
            Trained trained = train(run);
            if (!first) {
              first = std::move(trained);
              continue;
            }
            EXPECT_TRUE(trained == *first) << name_of(dtype) << ' ' << accumulation << ' ' << pipe
                                           << ' ' << name_of(partition) << ' ' << name_of(schedule);
          }
        }
      }
    }
  }
}

TEST(PipelineBits, OfT5WithAHeadOfItsOwn_AreThoseWithoutOne_WhereverItIsCut) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Way run{.kind = Kind::t5_untied, .dtype = dtype};
    const Trained plain = train(run);
    for (const int pipe : {2, 3, 4}) {
      for (const auto partition :
           {parallel::PipelinePartition::best, parallel::PipelinePartition::uniform}) {
        run.ranks.pipe = pipe;
        run.change = [&](EngineConfig& config) { config.pipeline.partition = partition; };
        EXPECT_TRUE(train(run) == plain)
            << name_of(dtype) << ' ' << pipe << ' ' << name_of(partition);
      }
    }
  }
}

// Every rank learns of a gradient that is not finite on one rank of the pipeline.
TEST(PipelineOverflow, IsSkippedOnAllRanks) {
  comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [](comm::World& world) {
    set_mesh(world, {.pipe = 2});
    const auto model = make(Kind::gpt2_untied);
    EngineConfig config = config_of({});
    config.precision.check_overflow = true;
    Engine engine(*model, config, world);
    const std::string name = "transformer.h.0.mlp.c_fc.weight";  // the first rank's
    engine.edit({name}, [](Engine::EditedParameters& parameters) {
      Tensor& weight = parameters.begin()->second;
      auto values = weight.to_vector<float>();
      values.front() = 3e38F;
      weight.copy_from(Tensor::from<float>(values, weight.shape()));
    });
    std::vector<nn::Batch> batches;
    for (int64_t i = 0; i < 4; ++i) batches.push_back(batch_of(Kind::gpt2_untied, i));
    engine.run_passes(batches);
    const StepResult result = engine.step();
    EXPECT_EQ(result.outcome, StepOutcome::skipped_overflow);
    EXPECT_THAT(result.overflow, HasSubstr("transformer."));
  });
}

// The first block of this model reads and writes much and computes little.
struct SlowFirstBlock : nn::Gpt2 {
  using nn::Gpt2::Gpt2;
  nn::TensorList stage(int64_t index, const nn::Batch& batch, nn::TensorList x) override {
    x = nn::Gpt2::stage(index, batch, std::move(x));
    for (int i = 0; index == 1 && i < 200; ++i) x.front() = autograd::add(x.front(), 1.0);
    return x;
  }
};

TEST(PipelineCuts, GiveEachRankAboutAsMuchTime_OrWhatTheConfigSays) {
  const auto stages_of_the_first = [](parallel::PipelinePartition partition) {
    int64_t stages = 0;
    comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
      set_mesh(world, {.pipe = 2});
      nn::Gpt2Config config = test::tiny_config(0.0);
      config.num_layers = 6;
      config.tie_word_embeddings = false;
      SlowFirstBlock model(config);
      const parallel::PipelineCut cut(
          model, [] { return test::make_batch(0, 2, 8); }, {.partition = partition}, world);
      if (world.rank() == 0) stages = cut.part(0).segments.back().end;
    });
    return stages;
  };
  // The embedding and this block.
  EXPECT_EQ(stages_of_the_first(parallel::PipelinePartition::best), 2);
  EXPECT_EQ(stages_of_the_first(parallel::PipelinePartition::uniform), 4);
}

// Each of P ranks has only its own stages: weights, gradients and states.
TEST(PipelineMemory, IsThatOfARanksOwnStages) {
  comm::run_local_ranks(4, {.seed = 7, .num_threads = 1}, [](comm::World& world) {
    set_mesh(world, {.pipe = 4});
    const auto model = make(Kind::gpt2_untied);
    Engine engine(*model, config_of({.stage = 0}), world);
    std::set<std::string> expected{str("h.", world.rank())};
    if (world.rank() == 0) expected.insert({"wte.weight", "wpe.weight"});
    if (world.rank() == 3) expected.insert({"ln_f.weight", "ln_f.bias", "lm_head.weight"});
    std::set<std::string> found;
    for (const ShardGroup& group : *engine.step_program().groups) {
      for (const Placement& placement : group.placements()) {
        std::string name = placement.parameter->name();
        const std::string_view root = "transformer.";
        if (name.starts_with(root)) name.erase(0, root.size());
        found.insert(name.starts_with("h.") ? name.substr(0, 3) : name);
      }
    }
    EXPECT_EQ(found, expected);
    const MemoryReport memory = world.context().allocator().report();
    int64_t bytes = 0;
    for (const ShardGroup& group : *engine.step_program().groups) bytes += group.bytes();
    EXPECT_EQ(memory.at(Tier::device, Label::parameters).live, bytes);
  });
}

// Per step: each micro-batch's boundary once forward and once backward, and a few numbers.
TEST(PipelineTraffic, IsTheBoundariesOfTheMicroBatches) {
  constexpr int64_t kMicroBatches = 6, kBoundary = 2 * 8 * 24 * 4;  // B T C, f32
  comm::run_local_ranks(3, {.seed = 7, .num_threads = 1}, [](comm::World& world) {
    set_mesh(world, {.pipe = 3});
    const auto model = make(Kind::gpt2_untied);
    Engine engine(*model, config_of({.accumulation = kMicroBatches}), world);
    std::vector<nn::Batch> batches;
    for (int64_t i = 0; i < kMicroBatches; ++i) batches.push_back(batch_of(Kind::gpt2_untied, i));
    const comm::Communicator& pipe = world.pipe()->communicator();
    const int64_t before = pipe.bytes_sent();
    engine.run_passes(batches);
    const int64_t neighbours = world.rank() == 1 ? 2 : 1;
    EXPECT_EQ(pipe.bytes_sent() - before, neighbours * kMicroBatches * kBoundary);
    const int64_t after = pipe.bytes_sent();
    engine.step();
    // Each of the two other ranks gets the losses and targets, the squares of the parameters, and
    // the first that is not finite.
    const auto numbers = kMicroBatches + 1 + static_cast<int64_t>(model->parameters().size()) + 2;
    EXPECT_EQ(pipe.bytes_sent() - after, 2 * numbers * 8);
  });
}

// A rank that is gone is named with its place in the mesh.
TEST(PipelineErrors, NameTheRankThatIsGone) {
  std::string message;
  try {
    comm::run_local_ranks(4, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
      set_mesh(world, {.pipe = 2, .data = 2});
      const auto model = make(Kind::llama);
      std::vector<nn::Batch> batches;
      for (int64_t i = 0; i < 4; ++i) batches.push_back(batch_of(Kind::llama, i));
      try {
        Engine engine(*model, config_of({}), world);
        // All have made their engines before the rank goes: the others meet it in the passes.
        world.communicator().barrier(world.context().compute()).wait();
        if (world.rank() == 3) throw DataError("the disk is gone");
        engine.run_passes(batches);
        engine.step();
      } catch (const CommError& error) {
        if (world.rank() == 2) message = error.what();
        throw;
      }
    });
  } catch (const DataError&) {
  }
  EXPECT_THAT(message, HasSubstr("rank 3"));
  EXPECT_THAT(message, HasSubstr("rank 3 (data 1, pipe 1)"));
}

std::string refusal_of(Kind kind, const Ranks& ranks,
                       const std::function<void(EngineConfig&)>& change,
                       const std::function<void(Engine&)>& use = {}, bool dynamic_model = false) {
  std::string message;
  try {
    comm::run_local_ranks(ranks.all(), {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
      set_mesh(world, ranks);
      const auto model = make(kind);
      EngineConfig config = config_of({});
      if (change) change(config);
      Engine engine(*model, config, world, {.dynamic_model = dynamic_model});
      if (use) use(engine);
    });
  } catch (const std::exception& error) {
    message = error.what();
  }
  return message;
}

TEST(PipelineErrors, NameTheCure) {
  const Ranks two{.pipe = 2};
  const auto with = [&](Kind kind, const std::function<void(EngineConfig&)>& change) {
    return refusal_of(kind, two, change);
  };
  EXPECT_THAT(refusal_of(Kind::gpt2, {.pipe = 5}, {}),
              HasSubstr("zinc.mesh.pipe 5: the model has 4 blocks"));
  EXPECT_THAT(with(Kind::gpt2, [](EngineConfig& config) { config.zero.stage = 3; }),
              HasSubstr("zinc.mesh.pipe 2 goes with ZeRO stages 0 to 2"));
  EXPECT_THAT(
      with(Kind::gpt2,
           [](EngineConfig& config) { config.zero.offload_optimizer.device = OffloadDevice::cpu; }),
      HasSubstr("transformer.wte.weight"));
  EXPECT_THAT(with(Kind::llama,
                   [](EngineConfig& config) {
                     config.gradient.reduce_schedule.reset();
                     config.pass_order = PassOrder::vertical;
                   }),
              HasSubstr("leave \"schedule\": \"vertical\" out"));
  EXPECT_THAT(with(Kind::llama,
                   [](EngineConfig& config) {
                     config.recompute = {.every_blocks = 1, .cpu_checkpointing = true};
                   }),
              HasSubstr("cpu_checkpointing"));
  EXPECT_THAT(
      with(Kind::llama, [](EngineConfig& config) { config.pipeline.pattern = "*.experts.*"; }),
      HasSubstr("no stage of the model has a parameter of such a name"));
  EXPECT_THAT(refusal_of(Kind::llama, two, {}, {}, /*dynamic_model=*/true),
              HasSubstr("dynamic_model"));
  EXPECT_THAT(refusal_of(Kind::llama, two, {},
                         [](Engine& engine) { engine.forward(batch_of(Kind::llama, 0)); }),
              HasSubstr("zinc::train_batch"));
  EXPECT_THAT(
      refusal_of(Kind::llama, two, {},
                 [](Engine& engine) { engine.next_logits(batch_of(Kind::llama, 0)["input_ids"]); }),
      HasSubstr("no rank has the whole model"));
  EXPECT_THAT(refusal_of(Kind::llama, two, {},
                         [](Engine& engine) {
                           std::vector<nn::Batch> batches;
                           for (int64_t i = 0; i < engine.config().batches_per_call(); ++i) {
                             batches.push_back(batch_of(Kind::llama, i));
                           }
                           engine.run_passes(batches);
                           engine.release_to_model();
                         }),
              HasSubstr("call it between steps"));
}

// Also by a rank that has not got the parameter, before it waits for the one that has.
TEST(PipelineErrors, AStateOfAnotherRule_IsRefusedByEveryRank) {
  std::atomic<int> refusals = 0;
  comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
    set_mesh(world, {.pipe = 2});
    world.pipe()->communicator().set_deadline(std::chrono::seconds(5));
    const auto model = make(Kind::gpt2);
    Engine engine(*model, config_of({.change = muon}), world);
    for (const char* const block : {"0", "3"}) {
      const std::string name = str("transformer.h.", block, ".mlp.c_fc.weight");
      EXPECT_EQ(engine.optimizer_state(name, "momentum_buffer").numel(), 24 * 96);
      try {
        engine.optimizer_state(name, "exp_avg");
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("as a whole"));
        ++refusals;
      }
    }
  });
  EXPECT_EQ(refusals, 4);
}

struct NoStages : test::LossOnly {
  nn::Embedding table{*this, "table", {.count = 8, .features = 1}};
  Tensor loss(const nn::Batch& batch) override {
    return autograd::sum(table.forward(batch["input_ids"]));
  }
};

TEST(PipelineErrors, AModelWithoutStages_IsRefused) {
  std::string message;
  try {
    comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
      set_mesh(world, {.pipe = 2});
      NoStages model;
      EngineConfig config;
      Engine engine(model, config, world);
    });
  } catch (const std::exception& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("loss_only does not: derive it from zinc::nn::Staged"));
}

// A client's rewrite that breaks the order is named before a message is sent.
TEST(PipelineErrors, APassThatLosesASend_IsNamed) {
  std::string message;
  try {
    comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
      set_mesh(world, {.pipe = 2});
      const auto model = make(Kind::llama);
      EngineOptions options;
      options.rewrites.push_back(
          {.name = "loses a send", .apply = [](Program& program, const RewriteInputs&) {
             std::erase_if(program.pipeline, [](const PipelineOp& op) {
               return op == PipelineOp{parallel::PipelineWork::send_output, 1};
             });
           }});
      Engine engine(*model, config_of({}), world, std::move(options));
    });
  } catch (const std::exception& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("rewrite 'loses a send'"));
  EXPECT_THAT(message, HasSubstr("micro-batch 2"));
}

}  // namespace pipeline_training_test
}  // namespace zinc::zero
