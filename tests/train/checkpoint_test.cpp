// A checkpoint, saved and loaded: the bits of a run that was not interrupted, in any world, on any
// stage and tier; what is damaged is found and named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/local/local.h"
#include "core/crc32c.h"
#include "core/error.h"
#include "files/safetensors/reader.h"
#include "hub/model.h"
#include "nn/lora.h"
#include "nn/quantize.h"
#include "tests/files/scratch_folder.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/states_of.h"
#include "tests/zero/tiny_model.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/compare.h"
#include "train/checkpoint/save_checkpoint.h"
#include "train/weights/save_model.h"

namespace zinc::train {
namespace checkpoint_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using zero::OffloadDevice;
using zero::test::make_batch;
using zero::test::tiny_config;

constexpr int64_t kBefore = 2;  // steps before the checkpoint, and after it
constexpr uint64_t kSeed = 4;

struct Way {
  std::string name;
  int world = 2;
  int stage = 0;
  DType dtype = DType::f32;
  OffloadDevice optimizer = OffloadDevice::none;
  OffloadDevice parameters = OffloadDevice::none;
  int64_t accumulation = 1;
  bool world_determinism = false;
  int tensor = 1;      // ranks that share the layers
  int sequence = 1;    // ranks that share the sequences
  int pipe = 1;        // ranks that have some of the layers each
  int64_t bucket = 0;  // elements of every bucket; 0: as they are by default
  optim::Moments moments = optim::Moments::f32;
  optim::OptimizerKind rule = optim::OptimizerKind::adamw;
  bool narrow_weights = false;
};

std::ostream& operator<<(std::ostream& os, const Way& way) { return os << way.name; }

zero::EngineConfig config_of(const Way& way, const std::string& swap) {
  zero::EngineConfig config;
  config.batch.micro_batch = 2;
  config.batch.accumulation = way.accumulation;
  config.precision.dtype = way.dtype;
  if (way.dtype == DType::f16) {
    config.precision.check_overflow = true;
    config.precision.loss_scale = {.dynamic = true, .initial_scale_power = 40, .window = 3};
  }
  config.gradient.clipping = 0.5;
  config.zero.stage = way.stage;
  config.zero.param_persistence_threshold = 100;  // biases and norms are whole, weights sharded
  config.zero.sub_group_size = 5000;
  config.zero.offload_optimizer.device = way.optimizer;
  config.zero.offload_optimizer.nvme_path = swap;
  config.zero.offload_param.device = way.parameters;
  config.zero.offload_param.nvme_path = swap;
  config.schedule.kind = optim::ScheduleKind::warmup_lr;
  config.optimizer.moments = way.moments;
  config.optimizer.kind = way.rule;
  config.optimizer.narrow_weights = way.narrow_weights;
  config.optimizer.one_bit.freeze_step = 1;
  // What was sent is clipped.
  if (way.rule == optim::OptimizerKind::one_bit_adam) config.gradient.clipping = 0.05;
  // Two updates of WarmupLR have a rate of 0, from which the rule carries nothing.
  if (way.rule == optim::OptimizerKind::schedule_free) {
    config.schedule.kind = optim::ScheduleKind::constant;
  }
  if (way.sequence > 1) config.batch.sequence = 9;  // the length in make_batch()
  if (way.bucket > 0) {
    config.zero.reduce_bucket_size = config.zero.allgather_bucket_size =
        config.zero.prefetch_bucket_size = way.bucket;
  }
  if (way.world_determinism) config.determinism = zero::Determinism::world;
  return config;
}

void take_mesh(comm::World& world, const Way& way) {
  comm::RankSettings settings = world.settings();
  settings.mesh.tensor = way.tensor;
  settings.mesh.sequence = way.sequence;
  settings.mesh.pipe = way.pipe;
  world.configure(std::move(settings));
}

// All that a run leaves: losses of its steps, and weights and states, as bits.
struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> values;
  zero::TrainingState state;
};

void step(zero::Engine& engine, int64_t number, std::vector<double>* losses) {
  const int64_t micro_steps = engine.config().batch.accumulation;
  const comm::MeshPlace data = engine.world().data();
  const int64_t together = engine.config().batches_per_call();
  for (int64_t i = 0; i < micro_steps; i += together) {
    std::vector<nn::Batch> batches;
    for (int64_t j = i; j < i + together; ++j) {
      batches.push_back(make_batch((number * micro_steps + j) * data.size() + data.rank()));
    }
    if (engine.world().pipe() != nullptr) {
      engine.run_passes(batches);
    } else {
      engine.backward(engine.forward(batches.front()));
    }
    const zero::StepResult result = engine.step();
    if (losses != nullptr && result.outcome != zero::StepOutcome::accumulated) {
      losses->push_back(result.loss);
    }
  }
}

void take_values(zero::Engine& engine, Outcome& outcome) {
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    values[name] = engine.parameter(name).to_vector<float>();
    if (!parameter->requires_grad()) continue;
    for (const auto& [kind, of_kind] : zero::test::states_of(engine, name)) {
      values[name + " " + kind] = of_kind.to_vector<float>();
    }
  }
  if (!engine.world().is_main()) return;
  outcome.values = std::move(values);
  outcome.state = engine.state();
}

// Runs `steps` steps from the first or, with `from`, from a checkpoint; with `to`, a checkpoint is
// saved at the end.
Outcome run(const Way& way, int64_t steps, const std::string& from = {}, const std::string& to = {},
            const std::function<void(zero::Engine&)>& look = {}) {
  const offload::SwapFolder swap;
  Outcome outcome;
  comm::run_local_ranks(way.world, {.seed = kSeed, .num_threads = 1}, [&](comm::World& world) {
    take_mesh(world, way);
    nn::Gpt2 model(tiny_config());
    model.freeze("transformer.h.1.mlp*");
    zero::Engine engine(model, config_of(way, swap.path()), world);
    if (!from.empty()) load_checkpoint(engine, from);
    if (look) look(engine);
    std::vector<double>* losses = world.is_main() ? &outcome.losses : nullptr;
    const int64_t first = engine.state().steps;
    for (int64_t i = 0; i < steps; ++i) step(engine, first + i, losses);
    if (!to.empty()) save_checkpoint(engine, to);
    take_values(engine, outcome);
  });
  return outcome;
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.values.size(), b.values.size());
  for (const auto& [name, values] : a.values) {
    const std::vector<float>& others = b.values.at(name);
    ASSERT_EQ(values.size(), others.size()) << name;
    EXPECT_EQ(std::memcmp(values.data(), others.data(), values.size() * sizeof(float)), 0) << name;
  }
  EXPECT_EQ(a.state.steps, b.state.steps);
  EXPECT_EQ(a.state.applied, b.state.applied);
  EXPECT_EQ(a.state.loss_scale.scale, b.state.loss_scale.scale);
  EXPECT_EQ(a.state.schedule.updates, b.state.schedule.updates);
  EXPECT_EQ(a.state.carried, b.state.carried);
}

Outcome tail_of(const Outcome& whole) {
  Outcome tail = whole;
  tail.losses.erase(tail.losses.begin(), tail.losses.begin() + kBefore);
  return tail;
}

class Resume : public testing::TestWithParam<Way> {};

TEST_P(Resume, HasTheBitsOfARunThatWasNotInterrupted) {
  const Way& way = GetParam();
  const files::ScratchFolder folder;
  const Outcome whole = run(way, 2 * kBefore);
  run(way, kBefore, {}, folder.path());
  const Outcome resumed = run(way, kBefore, folder.path());
  expect_same_bits(resumed, tail_of(whole));
}

// A checkpoint that is written beside training has the values of its beginning.
TEST_P(Resume, WrittenBesideTraining_HasTheValuesOfItsBeginning) {
  const Way& way = GetParam();
  const files::ScratchFolder folder;
  const offload::SwapFolder swap;
  comm::run_local_ranks(way.world, {.seed = kSeed, .num_threads = 1}, [&](comm::World& world) {
    take_mesh(world, way);
    nn::Gpt2 model(tiny_config());
    model.freeze("transformer.h.1.mlp*");
    zero::Engine engine(model, config_of(way, swap.path()), world);
    CheckpointSaver saver(engine, folder.path());
    EXPECT_FALSE(saver.poll().has_value());
    for (int64_t i = 0; i < 2 * kBefore; ++i) {
      if (i == 1 || i == kBefore) {
        if (saver.is_pending()) saver.finish();
        saver.begin({}, {}, /*beside=*/true);
        EXPECT_TRUE(saver.is_pending());
      }
      step(engine, i, nullptr);
    }
    EXPECT_EQ(saver.finish(), folder / "step-000002");
    EXPECT_FALSE(saver.is_pending());
  });
  EXPECT_THAT(folder.names(), ElementsAre("step-000001", "step-000002"));
  expect_same_bits(run(way, kBefore, folder.path()), tail_of(run(way, 2 * kBefore)));
}

// Values by parameter and kind, as ranks hand them out.
using OwnValues = std::map<std::string, std::vector<float>>;

void append(OwnValues& to, const zero::OwnPiece& piece) {
  std::vector<float>& values = to[piece.name + ' ' + std::string(piece.kind)];
  const auto* first = static_cast<const float*>(piece.values.data());
  values.insert(values.end(), first, first + piece.values.numel());
}

OwnValues own_values(zero::Engine& engine) {
  OwnValues values;
  engine.read_own(zero::Engine::Own::weights_and_states,
                  [&](const zero::OwnPiece& piece) { append(values, piece); });
  return values;
}

// Between steps all reads of the engine see what it has, and the writer what it began with.
TEST_P(Resume, WhileItIsWritten_OthersReadTheSameValues) {
  const Way& way = GetParam();
  const offload::SwapFolder swap;
  comm::run_local_ranks(way.world, {.seed = kSeed, .num_threads = 1}, [&](comm::World& world) {
    take_mesh(world, way);
    nn::Gpt2 model(tiny_config());
    model.freeze("transformer.h.1.mlp*");
    zero::Engine engine(model, config_of(way, swap.path()), world);
    step(engine, 0, nullptr);
    Outcome before, beside;
    take_values(engine, before);
    const OwnValues own = own_values(engine);
    const std::string moment = engine.moment();

    StateSnapshot snapshot;
    std::vector<StateSnapshot::Part> parts = snapshot.take(engine);
    OwnValues written;
    std::promise<void> begins;
    std::thread writer([&, may_begin = begins.get_future()]() mutable {
      may_begin.wait();
      StateSnapshot::read(std::move(parts), [&](const zero::OwnPiece& piece) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));  // a slow disk
        append(written, piece);
      });
    });
    // First with all of it held, then while pieces are let go.
    for (const bool has_begun : {false, true}) {
      if (has_begun) begins.set_value();
      take_values(engine, beside);
      EXPECT_EQ(beside.values, before.values);
      EXPECT_EQ(own_values(engine), own);
      EXPECT_EQ(engine.moment(), moment);
      if (has_begun || way.optimizer != OffloadDevice::nvme) continue;
      StateSnapshot second;
      EXPECT_THROW(second.take(engine), InvalidArgument);
    }
    step(engine, 1, nullptr);
    writer.join();
    EXPECT_EQ(written, own);
    // A rank of many may own nothing that is trained.
    const bool trains = std::ranges::any_of(own, [&](const auto& entry) {
      return engine.model().parameter(entry.first.substr(0, entry.first.find(' '))).requires_grad();
    });
    EXPECT_EQ(own_values(engine) == own, !trains || engine.state().applied == 0);
  });
}

const auto kNvme = OffloadDevice::nvme;
const auto kCpu = OffloadDevice::cpu;

INSTANTIATE_TEST_SUITE_P(
    Ways, Resume,
    testing::Values(
        Way{"alone_f32", 1, 0}, Way{"stage0_f32", 2, 0}, Way{"stage1_bf16", 3, 1, DType::bf16},
        Way{"stage2_f16", 2, 2, DType::f16}, Way{"stage3_bf16", 3, 3, DType::bf16},
        Way{"stage3_f32", 2, 3}, Way{"stage1_host", 2, 1, DType::bf16, kCpu},
        Way{"stage2_nvme", 2, 2, DType::f16, kNvme},
        Way{"stage3_host_host", 2, 3, DType::f16, kCpu, kCpu},
        Way{"stage3_nvme_nvme", 3, 3, DType::bf16, kNvme, kNvme},
        Way{"accumulated", 2, 1, DType::bf16, OffloadDevice::none, OffloadDevice::none, 3},
        Way{.name = "narrow_moments",
            .world = 2,
            .stage = 1,
            .dtype = DType::bf16,
            .moments = optim::Moments::bf16},
        Way{.name = "narrow_moments_host",
            .world = 2,
            .stage = 2,
            .dtype = DType::bf16,
            .optimizer = kCpu,
            .moments = optim::Moments::bf16},
        Way{.name = "narrow_moments_nvme",
            .world = 3,
            .stage = 3,
            .dtype = DType::bf16,
            .optimizer = kNvme,
            .parameters = kNvme,
            .moments = optim::Moments::bf16},
        Way{.name = "blocks_stage2",
            .world = 2,
            .stage = 2,
            .dtype = DType::bf16,
            .rule = optim::OptimizerKind::adam8bit},
        Way{.name = "blocks_stage3_host",
            .world = 3,
            .stage = 3,
            .optimizer = kCpu,
            .rule = optim::OptimizerKind::adam8bit},
        Way{.name = "blocks_stage3_nvme",
            .world = 3,
            .stage = 3,
            .dtype = DType::bf16,
            .optimizer = kNvme,
            .parameters = kNvme,
            .rule = optim::OptimizerKind::adam8bit},
        Way{.name = "averaged_stage1_f16",
            .world = 2,
            .stage = 1,
            .dtype = DType::f16,
            .rule = optim::OptimizerKind::schedule_free},
        Way{.name = "averaged_stage3_nvme",
            .world = 3,
            .stage = 3,
            .dtype = DType::bf16,
            .optimizer = kNvme,
            .parameters = kNvme,
            .rule = optim::OptimizerKind::schedule_free},
        Way{.name = "lamb_stage3_nvme",
            .world = 3,
            .stage = 3,
            .dtype = DType::bf16,
            .optimizer = kNvme,
            .rule = optim::OptimizerKind::lamb},
        Way{.name = "signs_stage0", .world = 2, .rule = optim::OptimizerKind::one_bit_adam},
        Way{.name = "signs_alone", .rule = optim::OptimizerKind::one_bit_adam},
        Way{.name = "signs_stage1_f16",
            .world = 3,
            .stage = 1,
            .dtype = DType::f16,
            .rule = optim::OptimizerKind::one_bit_adam},
        Way{.name = "signs_stage2_host",
            .world = 2,
            .stage = 2,
            .dtype = DType::bf16,
            .optimizer = kCpu,
            .rule = optim::OptimizerKind::one_bit_adam},
        Way{.name = "signs_stage2_nvme",
            .world = 3,
            .stage = 2,
            .dtype = DType::bf16,
            .optimizer = kNvme,
            .rule = optim::OptimizerKind::one_bit_adam},
        Way{.name = "narrow_weights_stage2",
            .world = 2,
            .stage = 2,
            .dtype = DType::bf16,
            .moments = optim::Moments::bf16,
            .narrow_weights = true},
        Way{.name = "narrow_weights_stage3_nvme",
            .world = 3,
            .stage = 3,
            .dtype = DType::bf16,
            .optimizer = kNvme,
            .parameters = kNvme,
            .narrow_weights = true},
        Way{.name = "narrow_weights_stage3_host",
            .world = 3,
            .stage = 3,
            .dtype = DType::bf16,
            .optimizer = kCpu,
            .parameters = kCpu,
            .narrow_weights = true},
        Way{.name = "adafactor_stage2",
            .world = 2,
            .stage = 2,
            .dtype = DType::bf16,
            .rule = optim::OptimizerKind::adafactor},
        Way{.name = "adafactor_stage3_host",
            .world = 3,
            .stage = 3,
            .optimizer = kCpu,
            .rule = optim::OptimizerKind::adafactor},
        Way{.name = "pipe_f16", .world = 4, .stage = 2, .dtype = DType::f16, .pipe = 2},
        Way{.name = "slices_f16", .world = 3, .dtype = DType::f16, .tensor = 3},
        Way{.name = "slices_stage2_host",
            .world = 6,
            .stage = 2,
            .dtype = DType::bf16,
            .optimizer = kCpu,
            .tensor = 3},
        Way{.name = "slices_stage3_nvme",
            .world = 6,
            .stage = 3,
            .dtype = DType::bf16,
            .optimizer = kNvme,
            .parameters = kNvme,
            .tensor = 3},
        Way{.name = "sequences_stage3_host",
            .world = 6,
            .stage = 3,
            .dtype = DType::bf16,
            .optimizer = kCpu,
            .sequence = 3,
            .bucket = 900}),
    [](const auto& info) { return info.param.name; });

// Every way of the list reads what every other way wrote: values are the saved ones, to the last
// bit.
void expect_any_reads_any(const std::vector<Way>& ways) {
  for (const Way& from : ways) {
    const files::ScratchFolder folder;
    const Outcome saved = run(from, kBefore, {}, folder.path());
    for (const Way& to : ways) {
      SCOPED_TRACE(from.name + " to " + to.name);
      Outcome loaded = run(to, 0, folder.path());
      loaded.losses = saved.losses;
      if (from.dtype != DType::f16) loaded.state.loss_scale = saved.state.loss_scale;
      if (to.dtype != DType::f16) loaded.state.loss_scale = saved.state.loss_scale;
      // Frozen weights have no master: they are rounded to the model's dtype.
      for (auto& [name, values] : loaded.values) {
        if (name.starts_with("transformer.h.1.mlp")) values = saved.values.at(name);
      }
      expect_same_bits(loaded, saved);
    }
  }
}

TEST(Elastic, AnyWorldStageAndTierReadsWhatAnotherWrote) {
  expect_any_reads_any({Way{"a", 1, 0}, Way{"b", 3, 1, DType::bf16},
                        Way{.name = "c", .world = 5, .stage = 3, .bucket = 700},
                        Way{"d", 2, 2, DType::f16, kNvme}, Way{"e", 7, 3, DType::bf16, kCpu, kNvme},
                        Way{.name = "h", .world = 4, .stage = 1, .bucket = 3000},
                        Way{.name = "i",
                            .world = 6,
                            .stage = 2,
                            .dtype = DType::bf16,
                            .optimizer = kCpu,
                            .sequence = 3},
                        Way{"j", 8, 3, DType::f16}, Way{.name = "f", .world = 3, .tensor = 3},
                        Way{.name = "k", .world = 4, .stage = 1, .pipe = 2},
                        Way{.name = "g",
                            .world = 6,
                            .stage = 3,
                            .dtype = DType::bf16,
                            .optimizer = kNvme,
                            .tensor = 3}});
}

// Moments in blocks of 8 bits are encoded again as they were. A tensor rank would have other
// blocks.
TEST(Elastic, MomentsInBlocks_AreReadByAnyWorldStageAndTier) {
  std::vector<Way> ways{Way{"a", 1, 0}, Way{"b", 3, 1, DType::bf16},
                        Way{"c", 2, 2, DType::f16, kNvme}, Way{"d", 7, 3, DType::bf16, kCpu, kNvme},
                        Way{.name = "e", .world = 4, .stage = 1, .pipe = 2}};
  for (Way& way : ways) way.rule = optim::OptimizerKind::adam8bit;
  expect_any_reads_any(ways);
}

// States of whole parameters are their owner's, whichever rank that is.
TEST(Elastic, StatesOfWholeParameters_AreReadByAnyWorldStageAndTier) {
  for (const auto rule : {optim::OptimizerKind::lamb, optim::OptimizerKind::adafactor}) {
    std::vector<Way> ways{Way{"a", 1, 0}, Way{"b", 3, 1, DType::bf16},
                          Way{"c", 2, 2, DType::f16, kNvme},
                          Way{"d", 4, 3, DType::bf16, kCpu, kNvme},
                          Way{.name = "e", .world = 4, .stage = 1, .pipe = 2}};
    for (Way& way : ways) way.rule = rule;
    expect_any_reads_any(ways);
  }
}

// Their states have shapes of their own.
TEST(Elastic, StatesOfWholeParameters_AreCompared) {
  Way alone{"alone", 1, 0}, two{"two", 2, 2};
  alone.rule = two.rule = optim::OptimizerKind::adafactor;
  const files::ScratchFolder first, second, later;
  run(alone, kBefore, {}, first.path());
  run(two, 0, first.path(), second.path());
  run(two, 1, first.path(), later.path());
  const auto checkpoint = [](const files::ScratchFolder& folder) {
    return Checkpoint::open(find_checkpoints(folder.path()).front().path);
  };
  const CheckpointDifference none = compare(checkpoint(first), checkpoint(second));
  EXPECT_TRUE(none.values.empty() && none.only_a.empty() && none.only_b.empty());
  const CheckpointDifference some = compare(checkpoint(first), checkpoint(later));
  EXPECT_TRUE(some.only_a.empty() && some.only_b.empty());
  EXPECT_TRUE(std::ranges::any_of(some.values, [](const ValueDifference& values) {
    return values.kind == "exp_avg_sq_row" && values.numel == 24;
  }));
}

// Also what the rule carries from update to update, and the point from which it averages.
TEST(Elastic, AveragedWeights_AreReadByAnyWorldStageAndTier) {
  std::vector<Way> ways{Way{"a", 1, 0}, Way{"b", 3, 1, DType::bf16},
                        Way{"c", 2, 2, DType::f32, kNvme}, Way{"d", 4, 3, DType::bf16, kCpu, kNvme},
                        Way{.name = "e", .world = 4, .stage = 1, .pipe = 2}};
  ways.push_back(Way{.name = "f", .world = 3, .tensor = 3});
  for (Way& way : ways) way.rule = optim::OptimizerKind::schedule_free;
  expect_any_reads_any(ways);
}

// What signs left out, too: it belongs to the ranks that sent them.
TEST(Elastic, ErrorsOfSigns_AreReadByAnyStageAndTierOfAsManyRanks) {
  std::vector<Way> ways{Way{"a", 3, 0}, Way{"b", 3, 1, DType::bf16},
                        Way{"c", 3, 2, DType::f16, kNvme}, Way{"d", 3, 2, DType::bf16, kCpu}};
  for (Way& way : ways) way.rule = optim::OptimizerKind::one_bit_adam;
  expect_any_reads_any(ways);
}

TEST(Elastic, ErrorsOfSigns_OfOtherRanksAreRefusedUnlessTheyBeginAtZero) {
  const files::ScratchFolder folder;
  Way way{.name = "two", .world = 2, .stage = 1, .rule = optim::OptimizerKind::one_bit_adam};
  run(way, kBefore, {}, folder.path());
  for (const int world : {1, 3}) {
    way.world = world;
    EXPECT_THAT([&] { run(way, 1, folder.path()); },
                ThrowsMessage<Error>(
                    AllOf(HasSubstr("the state has what the signs of 2 ranks left out"),
                          HasSubstr(str("and here are ", world)), HasSubstr("--reset-errors"))));
  }
  comm::run_local_ranks(3, {.seed = kSeed, .num_threads = 1}, [&](comm::World& world) {
    const offload::SwapFolder swap;
    nn::Gpt2 model(tiny_config());
    model.freeze("transformer.h.1.mlp*");
    zero::Engine engine(model, config_of(way, swap.path()), world);
    load_checkpoint(engine, folder.path(), {}, {.sign_errors = false});
    const Tensor error = engine.optimizer_state("transformer.h.0.mlp.c_fc.weight", "sign_error_1");
    for (const float value : error.to_vector<float>()) ASSERT_EQ(value, 0.0f);
    for (int64_t i = 0; i < 3; ++i) step(engine, kBefore + i, nullptr);
    const auto after = engine.optimizer_state("transformer.h.0.mlp.c_fc.weight", "sign_error_1")
                           .to_vector<float>();
    EXPECT_TRUE(std::ranges::any_of(after, [](float value) { return value != 0.0f; }));
  });
}

TEST(Elastic, WeightsWithoutMasterWeights_AreReadByAnyWorldStageAndTier) {
  std::vector<Way> ways{Way{"a", 1, 0},
                        Way{"b", 3, 1},
                        Way{"c", 2, 2, DType::f32, kNvme},
                        Way{"d", 4, 3, DType::f32, kCpu, kNvme},
                        Way{.name = "e", .world = 4, .stage = 1, .pipe = 2},
                        Way{.name = "f", .world = 3, .tensor = 3}};
  for (Way& way : ways) {
    way.dtype = DType::bf16;
    way.narrow_weights = true;
  }
  expect_any_reads_any(ways);
}

// AdamW goes on from a checkpoint of Adam8bit with its values, and the other way round near them.
TEST(Elastic, MomentsInBlocks_AndThoseInF32_HaveOneCheckpoint) {
  const files::ScratchFolder folder, other;
  const Way wide{"wide", 2, 2};
  Way blocks{"blocks", 3, 3};
  blocks.rule = optim::OptimizerKind::adam8bit;
  const Outcome saved = run(blocks, kBefore, {}, folder.path());
  EXPECT_EQ(run(wide, 0, folder.path()).values, saved.values);
  const Outcome exact = run(wide, kBefore, {}, other.path());
  const Outcome encoded = run(blocks, 0, other.path());
  ASSERT_EQ(encoded.values.size(), exact.values.size());
  for (const auto& [name, values] : exact.values) {
    const std::vector<float>& near = encoded.values.at(name);
    float most = 0.0f;
    for (const float value : values) most = std::max(most, std::fabs(value));
    // Half of the widest gap of the signed map, 0.0141 of the scale.
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(near[i], values[i], 0.0071 * double{most}) << name << ' ' << i;
    }
  }
}

// With "determinism": "world" the bits do not depend on the world, nor on how often the world
// changes.
TEST(Elastic, WithWorldDeterminism_ARunThatChangesItsWorldHasTheBitsOfOneThatDoesNot) {
  Way way{"two", 2, 2};
  way.accumulation = 2;
  way.world_determinism = true;
  Way other = way;
  other.world = 4;
  other.accumulation = 1;
  other.stage = 3;
  const files::ScratchFolder folder;
  const Outcome whole = run(way, 2 * kBefore);
  run(way, kBefore, {}, folder.path());
  expect_same_bits(run(other, kBefore, folder.path()), tail_of(whole));
}

// Elsewhere sums are made in another order: what follows differs by their rounding alone.
TEST(Elastic, InAnotherWorldAtTheSameGlobalBatch_TheLossesFollow) {
  Way way{"two", 2, 2};
  way.accumulation = 3;
  Way other{"three", 3, 3};
  other.accumulation = 2;
  const files::ScratchFolder folder;
  const Outcome whole = tail_of(run(way, 2 * kBefore));
  run(way, kBefore, {}, folder.path());
  const Outcome moved = run(other, kBefore, folder.path());
  ASSERT_EQ(moved.losses.size(), whole.losses.size());
  // The first loss is of equal weights: a mean of some hundred f32. Then Adam divides gradients by
  // their own size, and the rounding of small ones grows.
  EXPECT_NEAR(moved.losses[0], whole.losses[0], 1e-6 * whole.losses[0]);
  EXPECT_NEAR(moved.losses[1], whole.losses[1], 1e-4 * whole.losses[1]);
}

// --- the folder

// One that is given up leaves nothing.
TEST(CheckpointFolder, IsCleanAfterASaveThatWasGivenUp) {
  const files::ScratchFolder folder;
  run({"", 2, 1}, 1, {}, {}, [&](zero::Engine& engine) {
    CheckpointSaver saver(engine, folder.path());
    saver.begin({}, {}, /*beside=*/true);
  });
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(CheckpointFolder, HoldsWhatItSays) {
  const files::ScratchFolder folder;
  run({"", 2, 1}, kBefore, {}, folder.path());
  EXPECT_THAT(folder.names(), ElementsAre("step-000002"));
  EXPECT_THAT(
      files::names_in(folder / "step-000002"),
      ElementsAre("manifest.json", "state-00000-of-00002.json", "state-00000-of-00002.safetensors",
                  "state-00001-of-00002.json", "state-00001-of-00002.safetensors"));
  const auto file =
      files::SafetensorsFile::open(folder / "step-000002/state-00000-of-00002.safetensors");
  EXPECT_NE(file.find("exp_avg_sq.transformer.wte.weight"), nullptr);
  const Checkpoint checkpoint = Checkpoint::open(folder / "step-000002");
  EXPECT_EQ(checkpoint.manifest().world, 2);
  EXPECT_EQ(checkpoint.manifest().seed, kSeed);
  EXPECT_EQ(checkpoint.state().applied, kBefore);
  EXPECT_THAT(checkpoint.tensors().at("transformer.wte.weight").kinds,
              ElementsAre("exp_avg", "exp_avg_sq", "weights"));
}

void make_folders(const files::ScratchFolder& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) std::filesystem::create_directory(folder / name);
}

TEST(CheckpointFolder, RestsOfAKilledRunGo_AndWhatWasCompleteIsNamed) {
  const files::ScratchFolder folder;
  make_folders(folder, {"step-000004", ".step-000008.tmp-7-0", ".step-000012.tmp-7-1", "notes",
                        ".trash-step-000002-7", ".other.tmp-1-1"});
  folder.write(".step-000012.tmp-7-1/manifest.json", "{}");
  folder.write(".trash-step-000002-7/manifest.json", "{}");
  run({"", 1, 0}, 1, {}, folder.path());
  std::filesystem::rename(folder / "step-000001", folder / ".step-000001.tmp-7-2");
  EXPECT_EQ(clean_checkpoints(folder.path()).size(), 4U);
  EXPECT_THAT(folder.names(), ElementsAre(".other.tmp-1-1", "notes", "step-000001", "step-000004"));
}

TEST(CheckpointFolder, LaterOnesAreSetAside) {
  const files::ScratchFolder folder;
  make_folders(folder, {"step-000004", "step-000008", "step-000012", "aside-step-000012"});
  EXPECT_EQ(set_later_aside(folder.path(), 4).size(), 2U);
  EXPECT_THAT(folder.names(), ElementsAre("aside-step-000008", "aside-step-000012", "step-000004"));
  EXPECT_EQ(find_checkpoints(folder.path()).size(), 1U);
  EXPECT_THAT(set_later_aside(folder.path(), 4), IsEmpty());
}

TEST(CheckpointFolder, OldOnesGo_ByNumber) {
  const files::ScratchFolder folder;
  make_folders(folder,
               {"step-000004", "step-1000000", "step-000100", "step-000099", "step-x", "best"});
  EXPECT_THAT(prune_checkpoints(folder.path(), 2),
              ElementsAre(folder / "step-000099", folder / "step-000004"));
  EXPECT_THAT(folder.names(), ElementsAre("best", "step-000100", "step-1000000", "step-x"));
}

TEST(CheckpointFolder, ADamagedNewestIsPassedBy_ANamedOneIsNot) {
  const files::ScratchFolder folder;
  const Way way{"", 2, 1};
  run(way, 1, {}, folder.path());
  run(way, 1, folder.path(), folder.path());
  EXPECT_THAT(folder.names(), ElementsAre("step-000001", "step-000002"));
  const std::string path = folder / "step-000002/state-00001-of-00002.safetensors";
  std::string bytes = files::read_whole_file(path);
  bytes[bytes.size() - 100] ^= 4;
  folder.write("step-000002/state-00001-of-00002.safetensors", bytes);
  comm::run_local_ranks(2, {.seed = kSeed, .num_threads = 1}, [&](comm::World& world) {
    std::vector<std::string> notes;
    EXPECT_EQ(open_checkpoint(world, folder.path(), {}, &notes).path(), folder / "step-000001");
    EXPECT_EQ(notes.size(), 1U);
    EXPECT_ANY_THROW(open_checkpoint(world, folder.path(), {.tag = "step-000002"}));
    EXPECT_THROW(open_checkpoint(world, folder / "elsewhere"), DataError);
  });
}

// A folder of damaged ones and an old one that is whole: that stays.
TEST(CheckpointFolder, TheNewestThatIsWholeStays_WhereAPruneVerifies) {
  const files::ScratchFolder folder;
  run({"", 1, 0}, 0, {}, {}, [&](zero::Engine& engine) {
    for (const int64_t step : {1, 2, 3, 4}) {
      save_checkpoint(engine, folder.path(), checkpoint_name(step));
    }
  });
  for (const std::string name : {"step-000003", "step-000004"}) {
    const std::string path = folder / (name + "/state-00000-of-00001.safetensors");
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  }
  EXPECT_THAT(prune_checkpoints(folder.path(), 1, /*verifies=*/true),
              ElementsAre(folder / "step-000003", folder / "step-000001"));
  EXPECT_THAT(folder.names(), ElementsAre("step-000002", "step-000004"));
  EXPECT_THAT(prune_checkpoints(folder.path(), 2, /*verifies=*/true), IsEmpty());
  EXPECT_THAT(prune_checkpoints(folder.path(), 1), ElementsAre(folder / "step-000002"));
}

// --- damage

// Reads all of a checkpoint as one rank of one does.
void read_all(const std::string& path) {
  const Checkpoint checkpoint = Checkpoint::open(path);
  checkpoint.verify();
  checkpoint.verify_frozen();
}

TEST(Damage, EveryFlippedBitIsFound) {
  const files::ScratchFolder folder;
  run({"", 2, 1}, 1, {}, folder.path());
  const std::string checkpoint = folder / "step-000001";
  read_all(checkpoint);
  std::mt19937_64 random(7);
  int found = 0, tried = 0;
  for (const std::string& name : files::names_in(checkpoint)) {
    const std::string path = checkpoint + '/' + name;
    const std::string whole = files::read_whole_file(path);
    for (int i = 0; i < 200; ++i, ++tried) {
      std::string damaged = whole;
      // The beginning holds headers and checksums: look there more often.
      const size_t at =
          random() % (i % 2 == 0 ? whole.size() : std::min<size_t>(whole.size(), 200));
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
      folder.write("step-000001/" + name, damaged);
      try {
        read_all(checkpoint);
        ADD_FAILURE() << name << ", byte " << at;
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr(name)) << at;
        ++found;
      }
    }
    folder.write("step-000001/" + name, whole);
  }
  EXPECT_EQ(found, tried);
  EXPECT_EQ(tried, 1000);
  read_all(checkpoint);
}

TEST(Damage, IsNamedByParameterAndElements) {
  const files::ScratchFolder folder;
  run({"", 1, 0}, 1, {}, folder.path());
  const std::string name = "step-000001/state-00000-of-00001.safetensors";
  const files::SafetensorsFile file = files::SafetensorsFile::open(folder / name);
  std::string bytes = files::read_whole_file(folder / name);
  bytes[static_cast<size_t>(file.find("exp_avg.transformer.wpe.weight")->begin) + 40] ^= 1;
  folder.write(name, bytes);
  EXPECT_THAT(files::message_of<DataError>([&] { read_all(folder / "step-000001"); }),
              HasSubstr("exp_avg of transformer.wpe.weight, elements 0 to 383,"));
}

TEST(Damage, TruncatedMissingAndMixedUpFilesAreRefused) {
  const files::ScratchFolder folder;
  run({"", 2, 1}, 1, {}, folder.path());
  run({"", 2, 1}, 1, folder.path(), folder.path());
  const std::string first = folder / "step-000001", second = folder / "step-000002";
  const auto refused = [&](const std::string& name, const std::string& content) {
    const std::string whole = files::read_whole_file(second + '/' + name);
    folder.write("step-000002/" + name, content);
    const std::string message = files::message_of<DataError>([&] { read_all(second); });
    folder.write("step-000002/" + name, whole);
    return message;
  };
  for (const std::string& name : files::names_in(second)) {
    SCOPED_TRACE(name);
    const std::string whole = files::read_whole_file(second + '/' + name);
    for (const size_t size : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1}) {
      EXPECT_THAT(refused(name, whole.substr(0, size)), HasSubstr(name));
    }
    EXPECT_THAT(refused(name, whole + "x"), HasSubstr(name));
    if (name != "manifest.json") {
      EXPECT_THAT(refused(name, files::read_whole_file(first + '/' + name)), HasSubstr(name));
      std::filesystem::rename(second + '/' + name, folder / "aside");
      EXPECT_THAT(files::message_of<DataError>([&] { read_all(second); }), HasSubstr(name));
      std::filesystem::rename(folder / "aside", second + '/' + name);
    }
  }
  read_all(second);
}

// Checksums that are right, and slices that do not make up a parameter.
TEST(Damage, SlicesOfAnotherMeshAreRefused) {
  const files::ScratchFolder folder;
  run({.name = "", .world = 3, .tensor = 3}, 0, {}, folder.path());
  const std::string path = folder / "step-000000/";
  const std::string name = "state-00001-of-00003.json";
  const std::string text = files::read_whole_file(path + name);
  const Manifest manifest = Checkpoint::open(path).manifest();
  const auto refused = [&](const std::function<void(StoredPart&)>& change) {
    StateIndex index = parse_state_index(text, name);
    const auto part = std::ranges::find_if(index.parts, [](const StoredPart& p) {
      return p.name == "transformer.h.2.mlp.c_fc.weight" && p.slice;
    });
    change(*part);
    const std::string changed = to_json(index);
    folder.write("step-000000/" + name, changed);
    Manifest other = manifest;
    for (StoredFile& file : other.files) {
      if (file.name != name) continue;
      file.bytes = static_cast<int64_t>(changed.size());
      file.crc = crc32c(std::as_bytes(std::span(changed)));
    }
    folder.write("step-000000/manifest.json", to_json(other));
    return files::message_of<DataError>([&] { Checkpoint::open(path); });
  };
  const auto become = [](int64_t index, int64_t count) {
    return [=](StoredPart& part) {
      part.slice = TensorSlice::of(part.shape, part.slice->dim, part.slice->sections, index, count);
    };
  };
  EXPECT_THAT(refused(become(2, 3)), HasSubstr("slice 1 of 3 is missing"));
  EXPECT_THAT(refused(become(1, 2)), HasSubstr("of another mesh"));
  EXPECT_THAT(refused(become(3, 4)), HasSubstr("are not part of a parameter"));
  EXPECT_THAT(refused([](StoredPart& part) { part.slice.reset(); }),
              HasSubstr("files of several checkpoints"));
  EXPECT_EQ(refused([](StoredPart&) {}), "(no error)");
}

TEST(Damage, ANewerVersionIsRefused_WithTheCure) {
  const files::ScratchFolder folder;
  run({"", 1, 0}, 1, {}, folder.path());
  std::string text = files::read_whole_file(folder / "step-000001/manifest.json");
  const std::string version = "\"version\": 1,";
  const size_t at = text.find(version), rest = text.find(',') + 1;
  ASSERT_NE(at, std::string::npos);
  text.replace(at, version.size(), "\"version\": 2,");
  const uint32_t crc = crc32c(std::as_bytes(std::span(text).subspan(rest)));
  folder.write("step-000001/manifest.json",
               fmt::format("{{\"crc32c\":\"{:08x}\",{}", crc, text.substr(rest)));
  EXPECT_THAT(files::message_of<DataError>([&] { Checkpoint::open(folder / "step-000001"); }),
              HasSubstr("its format is 2, this one reads up to 1; take that zinc"));
}

TEST(Load, RefusesAnotherModelSeedAndOptimizer) {
  const files::ScratchFolder folder;
  run({"", 1, 0}, 1, {}, folder.path());
  const auto refused = [&]<class E>(uint64_t seed, const nn::Gpt2Config& model_config,
                                    optim::OptimizerKind kind, E*) {
    std::string message;
    comm::run_local_ranks(1, {.seed = seed, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2 model(model_config);
      zero::EngineConfig config = config_of({}, {});
      config.optimizer.kind = kind;
      zero::Engine engine(model, config, world);
      message = files::message_of<E>([&] { load_checkpoint(engine, folder.path()); });
    });
    return message;
  };
  const auto adamw = optim::OptimizerKind::adamw;
  nn::Gpt2Config wide = tiny_config();
  wide.num_layers += 1;
  EXPECT_THAT(refused(kSeed, wide, adamw, static_cast<InvalidArgument*>(nullptr)),
              HasSubstr("weights of transformer.h.4"));
  EXPECT_THAT(refused(kSeed + 1, tiny_config(), adamw, static_cast<ConfigError*>(nullptr)),
              HasSubstr("--seed 4"));
  EXPECT_THAT(
      refused(kSeed, tiny_config(), optim::OptimizerKind::sgd, static_cast<ConfigError*>(nullptr)),
      HasSubstr("AdamW"));
}

TEST(Load, WhereItIsNotStrict_TakesWhatThereIs) {
  const files::ScratchFolder folder;
  const Outcome saved = run({"", 1, 0}, kBefore, {}, folder.path());
  for (const int more : {1, -1}) {
    comm::run_local_ranks(2, {.seed = kSeed, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2Config other = tiny_config();
      other.num_layers += more;
      nn::Gpt2 model(other);
      zero::Engine engine(model, config_of({"", 2, 3}, {}), world);
      if (more < 0) {
        EXPECT_THAT(files::message_of<ConfigError>([&] { load_checkpoint(engine, folder.path()); }),
                    HasSubstr("it has transformer.h.3."));
      }
      load_checkpoint(engine, folder.path(), {}, {.strict = false});
      EXPECT_EQ(engine.state().steps, kBefore);
      for (const std::string name : {"transformer.wte.weight", "transformer.h.0.ln_1.weight"}) {
        EXPECT_EQ(engine.parameter(name).to_vector<float>(), saved.values.at(name));
        EXPECT_EQ(engine.optimizer_state(name, "exp_avg").to_vector<float>(),
                  saved.values.at(name + " exp_avg"));
      }
      const std::string last =
          "transformer.h." + std::to_string(other.num_layers - 1) + ".mlp.c_fc.weight";
      const auto moment = engine.optimizer_state(last, "exp_avg").to_vector<float>();
      if (more > 0) {
        EXPECT_THAT(moment, testing::Each(0.0F));
      } else {
        EXPECT_EQ(moment, saved.values.at(last + " exp_avg"));
      }
    });
  }
}

// --- weights that nobody trains

class Frozen : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Frozen,
                         testing::Values(Way{"alone_f32", 1, 0},
                                         Way{"stage3_bf16", 3, 3, DType::bf16},
                                         Way{"stage2_host", 2, 2, DType::f16, OffloadDevice::cpu}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Frozen, WeightsAreNamed_AndFoundAgain) {
  const Way& way = GetParam();
  const files::ScratchFolder folder;
  const std::string base = folder / "base", checkpoints = folder / "checkpoints";
  const std::string frozen = "transformer.h.1.mlp.c_fc.weight";
  // The base is saved in f32; the other runs round from it.
  run({"", 1, 0}, 0, {}, {}, [&](zero::Engine& engine) { train::save_model(engine, base); });
  run(way, 0, {}, {}, [&](zero::Engine& engine) {
    for (int64_t i = 0; i < kBefore; ++i) step(engine, i, nullptr);
    CheckpointSaver saver(engine, checkpoints);
    saver.begin({}, {.frozen_from = base}, /*beside=*/true);
    saver.finish();
    saver.begin("copied", {}, /*beside=*/true);
    saver.finish();
  });
  const std::string path = checkpoints + "/step-000002";
  const Checkpoint checkpoint = Checkpoint::open(path);
  EXPECT_EQ(checkpoint.manifest().frozen->parameters.size(), 4U);
  EXPECT_TRUE(checkpoint.tensors().contains(frozen));
  for (const std::string& name : files::names_in(path)) {
    if (!name.ends_with(".safetensors")) continue;
    EXPECT_EQ(files::SafetensorsFile::open(path + '/' + name).find("weights." + frozen), nullptr);
  }
  read_all(path);
  const CheckpointDifference difference =
      compare(checkpoint, Checkpoint::open(checkpoints + "/copied"));
  EXPECT_TRUE(difference.values.empty() && difference.only_a.empty() && difference.only_b.empty());
  const Outcome whole = run(way, 2 * kBefore);
  expect_same_bits(run(way, kBefore, checkpoints), tail_of(whole));

  // A checkpoint without its base is not damaged: it is neither passed by nor deleted.
  std::filesystem::rename(base, folder / "moved");
  Checkpoint::open(path).verify();
  EXPECT_THAT(files::message_of<ConfigError>([&] { read_all(path); }),
              HasSubstr(base + ", which is not there"));
  std::filesystem::remove_all(checkpoints + "/copied");
  std::filesystem::rename(path, checkpoints + "/.step-000002.tmp-7-0");
  EXPECT_EQ(clean_checkpoints(checkpoints).size(), 1U);
  comm::run_local_ranks(2, {.seed = kSeed, .num_threads = 1}, [&](comm::World& world) {
    EXPECT_ANY_THROW(open_checkpoint(world, checkpoints));
    EXPECT_EQ(open_checkpoint(world, checkpoints, {.frozen_from = folder / "moved"}).path(), path);
  });

  const std::string file = folder / "moved/model.safetensors";
  std::string bytes = files::read_whole_file(file);
  bytes[static_cast<size_t>(files::SafetensorsFile::open(file).find(frozen)->begin) + 2] ^= 64;
  folder.write("moved/model.safetensors", bytes);
  EXPECT_THAT(files::message_of<ConfigError>([&] {
                Checkpoint changed = Checkpoint::open(path);
                changed.look_for_frozen_in(folder / "moved");
                changed.verify_frozen();
              }),
              HasSubstr(frozen + " is not what"));
  run(way, 0, {}, {}, [&](zero::Engine& engine) {
    CheckpointSaver saver(engine, checkpoints);
    EXPECT_ANY_THROW(saver.begin({}, {.frozen_from = folder / "moved"}, /*beside=*/true));
    EXPECT_FALSE(saver.is_pending());
  });
}

TEST(FrozenByHand, WeightsThatWereSetByHand_AreNotThoseOfTheFolder) {
  const files::ScratchFolder folder;
  run({"", 2, 2}, 0, {}, {}, [&](zero::Engine& engine) {
    train::save_model(engine, folder / "base");
    CheckpointSaver saver(engine, folder / "checkpoints");
    saver.begin("a", {.frozen_from = folder / "base"}, /*beside=*/false);
    saver.finish();
    const std::string name = "transformer.h.1.mlp.c_fc.weight";
    Tensor values = engine.parameter(name).clone();
    values.fill(0.25);
    engine.set_parameter(name, values);
    EXPECT_ANY_THROW(saver.begin("b", {.frozen_from = folder / "base"}, /*beside=*/false));
    saver.begin("c", {}, /*beside=*/false);
    saver.finish();
    EXPECT_FALSE(Checkpoint::open(folder / "checkpoints/c").manifest().frozen.has_value());
  });
}

// The engine's values are compared with the encoding of the folder's weights.
TEST(FrozenQuantized, BaseIsNamedAndLooksAsItsFolder_OrNothingIsSaved) {
  const files::ScratchFolder folder;
  const std::string base = folder / "base", name = "transformer.h.1.mlp.c_fc.weight";
  run({"", 1, 0}, 0, {}, {}, [&](zero::Engine& engine) { train::save_model(engine, base); });
  for (const auto format : {BlockFormat::nf4, BlockFormat::int8}) {
    for (const int stage : {1, 3}) {
      comm::run_local_ranks(2, {.seed = kSeed, .num_threads = 1}, [&](comm::World& world) {
        nn::Gpt2 model(tiny_config());
        nn::add_lora(model, {.rank = 2, .targets = {"c_fc"}});
        nn::quantize_base(model, format);
        zero::EngineConfig config;
        config.batch.micro_batch = 2;
        config.zero.stage = stage;
        zero::Engine engine(model, config, world);
        const std::string checkpoints = folder / str(name_of(format), stage);
        CheckpointSaver saver(engine, checkpoints);
        EXPECT_THAT(
            files::message_of<ConfigError>([&] { saver.begin("none", {}, /*beside=*/false); }),
            HasSubstr("name the folder of the base"));
        saver.begin("a", {.frozen_from = base}, /*beside=*/true);
        const Checkpoint saved = Checkpoint::open(saver.finish());
        saved.verify_frozen();
        const auto before = engine.parameter(name).to_vector<float>();
        Tensor values = engine.parameter(name).clone();
        values.fill(0.25);
        engine.set_parameter(name, values);
        EXPECT_ANY_THROW(saver.begin("b", {.frozen_from = base}, /*beside=*/false));
        // Values are encoded anew from the folder.
        load_checkpoint(engine, saved);
        EXPECT_EQ(engine.parameter(name).to_vector<float>(), before);
      });
    }
  }
}

// DeepSpeed's load_optimizer_states and load_lr_scheduler_states, and load_module_only: neither.
TEST(Load, OfAPart_LeavesStatesAndCountersAsTheyAre) {
  const files::ScratchFolder folder;
  const Outcome saved = run({"", 1, 0}, kBefore, {}, folder.path());
  for (const bool states : {true, false}) {
    for (const bool counters : {true, false}) {
      run({"", 2, 2}, 0, {}, {}, [&](zero::Engine& engine) {
        load_checkpoint(engine, folder.path(), {},
                        {.optimizer_states = states, .counters = counters});
        EXPECT_EQ(engine.state().steps, counters ? kBefore : 0);
        EXPECT_EQ(engine.state().schedule.updates, counters ? saved.state.schedule.updates : 0);
        Outcome loaded;
        take_values(engine, loaded);
        if (!engine.world().is_main()) return;
        for (const auto& [name, values] : loaded.values) {
          if (states || name.find(' ') == std::string::npos) {
            EXPECT_EQ(values, saved.values.at(name)) << name;
          } else {
            EXPECT_THAT(values, testing::Each(0.0F)) << name;
          }
        }
      });
    }
  }
}

}  // namespace checkpoint_test
}  // namespace zinc::train
