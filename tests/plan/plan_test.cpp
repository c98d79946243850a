#include "plan/plan.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "comm/single/single.h"
#include "hub/adapter.h"
#include "hub/model.h"
#include "plan/estimator.h"
#include "tests/files/mapped_bytes.h"
#include "tests/files/scratch_folder.h"
#include "tests/plan/tiny_run.h"
#include "train/checkpoint/save_checkpoint.h"
#include "train/run.h"
#include "train/trainer.h"
#include "train/weights/save_model.h"

namespace zinc::plan {
namespace plan_test {

using tiny_run::gpt2;
using tiny_run::kSeq;
using tiny_run::llama;
using tiny_run::Tokens;

hub::ModelConfigFile with_lora(hub::ModelConfigFile model) {
  model.tuning.lora = nn::LoraOptions{.rank = 4, .dropout = 0.1, .targets = {"all-linear"}};
  return model;
}

hub::ModelConfigFile with_quantized_base(hub::ModelConfigFile model, BlockFormat format) {
  model = with_lora(std::move(model));
  model.tuning.quantize = format;
  return model;
}

struct Case {
  const char* name;
  hub::ModelConfigFile model;
  int stage = 0;
  int world = 1;
  int64_t accumulation = 1;
  int64_t recompute_every = 0;
  DType dtype = DType::bf16;
  bool small_bounds = false;  // live, reuse and persistence bounds and buckets that bite
  bool host_inputs = false;   // cpu_checkpointing
  zero::Determinism determinism = zero::Determinism::run;
  zero::OffloadDevice optimizer = zero::OffloadDevice::none;
  zero::OffloadDevice parameters = zero::OffloadDevice::none;
  zero::PassOrder order = zero::PassOrder::horizontal;
  bool contiguous_inputs = false;  // contiguous_memory_optimization
  zero::OffloadStep step = zero::OffloadStep::automatic;
  double ratio = 1.0;
  zero::OffloadDevice inputs = zero::OffloadDevice::none;
  zero::GradientOffload gradients = zero::GradientOffload::host;
  std::optional<bool> overlap{};
  double clipping = 0.0;
  int64_t resident = 0;  // resident_memory
  std::optional<int64_t> recompute_blocks{};
  bool selective = false;
};

train::Config config_of(const Case& c) {
  train::Config config;
  config.seed = 5;
  zero::EngineConfig& engine = config.engine;
  engine.batch = {.micro_batch = 2, .accumulation = c.accumulation};
  engine.precision.dtype = c.dtype;
  engine.precision.check_overflow = c.dtype != DType::f32;
  engine.zero.stage = c.stage;
  engine.recompute = {
      .every_blocks = c.recompute_every,
      .most_blocks = c.recompute_blocks,
      .selective = c.selective,
      .cpu_checkpointing = c.host_inputs,
      .contiguous_memory_optimization = c.contiguous_inputs,
      .offload = {.device = c.inputs, .nvme_path = testing::TempDir(), .buffer_count = 2}};
  engine.determinism = c.determinism;
  engine.pass_order = c.order;
  engine.overlap_update = c.overlap;
  engine.gradient.clipping = c.clipping;
  engine.offload_step = c.step;
  engine.gradient_offload = c.gradients;
  engine.zero.offload_optimizer = {.device = c.optimizer,
                                   .nvme_path = testing::TempDir(),
                                   .pipeline_read = c.world != 2,
                                   .pipeline_write = c.world != 3,
                                   .ratio = c.ratio};
  engine.zero.offload_param = {.device = c.parameters,
                               .nvme_path = testing::TempDir(),
                               .buffer_count = 3,
                               .buffer_size = 4096,
                               .max_in_cpu = c.world == 2 ? 10'000 : 0};
  engine.zero.resident_memory = c.resident;
  if (c.world == 1) engine.zero.sub_group_size = 2048;
  if (c.small_bounds) {
    engine.zero.max_live_parameters = 0;
    engine.zero.max_reuse_distance = 0;
    engine.zero.param_persistence_threshold = 0;
    engine.zero.prefetch_bucket_size = 10'000;
    engine.zero.reduce_bucket_size = 5'000;
    engine.zero.allgather_bucket_size = 5'000;
  }
  return config;
}

struct Real {
  MemoryReport memory;
  int64_t sent = 0;  // in one step
  int64_t received = 0;
  offload::SwapTraffic swap;
};

// The update of the first of four steps ends beside the second; then comes one that is measured,
// from the end of an update to the end of the next; and that of the fourth ends on its own.
class Traffic final : public train::TrainerObserver {
 public:
  explicit Traffic(zero::Engine& engine)
      : engine_(engine), communicator_(engine.world().communicator()) {}
  void on_step(const train::StepMetrics& metrics, const train::Progress&) override {
    if (metrics.step == 2 || metrics.step == 3) engine_.finish_update();
    sent.push_back(communicator_.bytes_sent());
    received.push_back(communicator_.bytes_received());
    swap.push_back(engine_.usage().swap);
  }
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
  std::vector<offload::SwapTraffic> swap;

 private:
  zero::Engine& engine_;
  const comm::Communicator& communicator_;
};

// The memory of each rank of a real run, by rank.
std::vector<Real> run(const Case& c) {
  std::vector<Real> ranks(static_cast<size_t>(c.world));
  const train::Config config = config_of(c);
  const Tokens data;
  const files::ScratchFolder folder;
  comm::run_local_ranks(c.world, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    const auto model = hub::make_model(c.model);
    zero::Engine engine(*model, config.engine, world, {.total_steps = 4});
    data::Loader loader(data, {.micro_batch = 2,
                               .seq_len = kSeq,
                               .seed = 5,
                               .rank = world.rank(),
                               .world = world.size()});
    const data::EvaluationSet evaluation(data, {.batch = 2,
                                                .seq_len = kSeq,
                                                .max_samples = 8,
                                                .rank = world.rank(),
                                                .world = world.size()});
    Traffic traffic(engine);
    const train::CheckpointSaver saver(engine, folder.path());
    train::Trainer trainer(
        engine, loader, &evaluation, {}, &traffic, {.steps = 4},
        {.save = [&](const std::string& name) {
          // A run may be told to stop, and saves a checkpoint before its weights.
          engine.read_own(zero::Engine::Own::weights_and_states, [](const zero::OwnPiece&) {});
          if (c.model.tuning.has_adapters()) {
            train::save_adapter(engine, {.lora = *c.model.tuning.lora}, {}, folder / name);
          } else {
            train::save_model(engine, c.model, folder / name);
          }
        }});
    trainer.run();
    Real& real = ranks[static_cast<size_t>(world.rank())];
    real.memory = world.context().allocator().report();
    real.sent = traffic.sent[2] - traffic.sent[1];
    real.received = traffic.received[2] - traffic.received[1];
    real.swap = traffic.swap[2] - traffic.swap[1];
  });
  return ranks;
}

comm::World single_world() {
  return comm::World({}, comm::make_single(),
                     std::make_unique<Context>(ContextOptions{.seed = 5, .num_threads = 1}));
}

Case side_by_side(Case c) {
  c.contiguous_inputs = true;
  return c;
}

Case split(Case c, double ratio) {
  c.ratio = ratio;
  c.optimizer = zero::OffloadDevice::cpu;
  return c;
}

Case inputs_on_nvme(Case c) {
  c.inputs = zero::OffloadDevice::nvme;
  return c;
}

Case gradients_on_nvme(Case c) {
  c.gradients = zero::GradientOffload::nvme;
  c.optimizer = zero::OffloadDevice::nvme;
  return c;
}

Case beside_forward(Case c) {
  c.overlap = true;
  c.clipping = 1.0;
  return c;
}

Case beside_backward(Case c) {
  c.overlap = true;
  return c;
}

Case resident(Case c, int64_t bytes) {
  c.resident = bytes;
  return c;
}

Case recomputes_first(Case c, int64_t blocks) {
  c.recompute_every = 1;
  c.recompute_blocks = blocks;
  return c;
}

Case selective(Case c) {
  c.selective = true;
  return c;
}

class PlanOf : public testing::TestWithParam<Case> {};

TEST_P(PlanOf, IsThePeakOfTheRunToTheByte) {
  const Case& c = GetParam();
  const Plan plan =
      make_plan(c.model, config_of(c), {.world = c.world, .seq = kSeq, .backend = "local"});
  const std::vector<Real> ranks = run(c);
  int64_t fullest = 0;
  for (const Real& real : ranks) fullest = std::max(fullest, real.memory.at(Tier::device).peak);
  EXPECT_EQ(plan.fullest.device_peak(), fullest);

  const Real& real = ranks[static_cast<size_t>(plan.fullest.rank)];
  for (int t = 0; t < kNumTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    EXPECT_EQ(plan.fullest.peaks.at(tier).peak, real.memory.at(tier).peak) << name_of(tier);
    EXPECT_EQ(plan.fullest.peaks.reserved[static_cast<size_t>(t)].peak,
              real.memory.reserved[static_cast<size_t>(t)].peak)
        << name_of(tier);
    for (int l = 0; l < kNumLabels; ++l) {
      const auto label = static_cast<Label>(l);
      EXPECT_EQ(plan.fullest.peaks.at(tier, label).peak, real.memory.at(tier, label).peak)
          << name_of(tier) << " " << name_of(label);
    }
  }
  EXPECT_EQ(plan.fullest.at_peak.at(Tier::device).live, plan.fullest.device_peak());
  EXPECT_FALSE(plan.fullest.peak_moment.empty());

  int64_t sent = 0, received = 0;
  for (const auto& [name, traffic] : plan.fullest.step) {
    sent += traffic.bytes_sent;
    received += traffic.bytes_received;
  }
  EXPECT_EQ(sent, real.sent);
  EXPECT_EQ(received, real.received);
  EXPECT_EQ(plan.fullest.swap.bytes_read, real.swap.bytes_read);
  EXPECT_EQ(plan.fullest.swap.bytes_written, real.swap.bytes_written);
  EXPECT_EQ(real.swap.bytes_read > 0, real.memory.at(Tier::nvme).peak > 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, PlanOf,
    testing::Values(
        Case{"gpt2_0_1", gpt2()}, Case{"gpt2_0_2", gpt2(), 0, 2}, Case{"gpt2_1_2", gpt2(), 1, 2},
        Case{"gpt2_2_2", gpt2(), 2, 2}, Case{"gpt2_3_2", gpt2(), 3, 2},
        Case{"gpt2_3_3_bounds", gpt2(), 3, 3, 1, 0, DType::bf16, true},
        Case{"gpt2_2_3_bounds", gpt2(), 2, 3, 2, 0, DType::bf16, true},
        Case{"gpt2_1_4_accumulation", gpt2(), 1, 4, 3},
        Case{"gpt2_3_4_accumulation", gpt2(), 3, 4, 3},
        Case{"gpt2_3_2_recompute", gpt2(), 3, 2, 2, 1},
        Case{"gpt2_0_1_recompute", gpt2(), 0, 1, 1, 2},
        Case{"gpt2_0_2_f32", gpt2(), 0, 2, 2, 0, DType::f32},
        Case{"gpt2_3_2_f32", gpt2(), 3, 2, 1, 0, DType::f32, true},
        Case{"gpt2_2_2_f16", gpt2(), 2, 2, 1, 0, DType::f16},
        Case{"gpt2_3_2_host", gpt2(), 3, 2, 2, 1, DType::bf16, false, true},
        Case{"gpt2_2_2_world", gpt2(), 2, 2, 3, 0, DType::bf16, false, false,
             zero::Determinism::world},
        Case{"gpt2_2_2_mesh", gpt2(), 2, 2, 3, 1, DType::bf16, false, false,
             zero::Determinism::mesh},
        Case{"gpt2_3_1_mesh", gpt2(), 3, 1, 2, 0, DType::f32, false, false,
             zero::Determinism::mesh},
        Case{"gpt2_1_1_cpu", gpt2(), 1, 1, 1, 0, DType::bf16, false, false, zero::Determinism::run,
             zero::OffloadDevice::cpu},
        Case{"gpt2_1_2_cpu", gpt2(), 1, 2, 2, 0, DType::f32, false, false, zero::Determinism::run,
             zero::OffloadDevice::cpu},
        Case{"gpt2_2_3_cpu", gpt2(), 2, 3, 2, 0, DType::bf16, true, false, zero::Determinism::run,
             zero::OffloadDevice::cpu},
        Case{"llama_3_2_cpu", llama(), 3, 2, 2, 1, DType::bf16, false, true,
             zero::Determinism::world, zero::OffloadDevice::cpu},
        Case{"streamed", gpt2(), 3, 1, 1, 0, DType::bf16, true, false, zero::Determinism::run,
             zero::OffloadDevice::cpu, zero::OffloadDevice::cpu, zero::PassOrder::horizontal, false,
             zero::OffloadStep::device},
        Case{"streamed_default_tile", llama(), 2, 2, 2, 0, DType::bf16, false, false,
             zero::Determinism::run, zero::OffloadDevice::cpu, zero::OffloadDevice::none,
             zero::PassOrder::horizontal, false, zero::OffloadStep::device},
        Case{"gpt2_1_1_nvme", gpt2(), 1, 1, 1, 0, DType::bf16, false, false, zero::Determinism::run,
             zero::OffloadDevice::nvme},
        Case{"gpt2_2_2_nvme", gpt2(), 2, 2, 2, 0, DType::f32, false, false, zero::Determinism::run,
             zero::OffloadDevice::nvme},
        Case{"gpt2_3_3_nvme", gpt2(), 3, 3, 1, 0, DType::bf16, true, false, zero::Determinism::run,
             zero::OffloadDevice::nvme},
        Case{"params_cpu", gpt2(), 3, 2, 2, 0, DType::bf16, false, false, zero::Determinism::run,
             zero::OffloadDevice::none, zero::OffloadDevice::cpu},
        Case{"params_nvme", gpt2(), 3, 2, 1, 0, DType::bf16, true, false, zero::Determinism::run,
             zero::OffloadDevice::none, zero::OffloadDevice::nvme},
        Case{"params_nvme_states_cpu", llama(), 3, 3, 2, 1, DType::f32, true, true,
             zero::Determinism::run, zero::OffloadDevice::cpu, zero::OffloadDevice::nvme},
        Case{"params_cpu_states_nvme", gpt2(), 3, 1, 1, 0, DType::bf16, true, false,
             zero::Determinism::run, zero::OffloadDevice::nvme, zero::OffloadDevice::cpu},
        Case{"all_nvme", gpt2(), 3, 2, 2, 1, DType::bf16, false, false, zero::Determinism::run,
             zero::OffloadDevice::nvme, zero::OffloadDevice::nvme},
        Case{"vertical_all_nvme", gpt2(), 3, 2, 3, 1, DType::bf16, true, true,
             zero::Determinism::run, zero::OffloadDevice::nvme, zero::OffloadDevice::nvme,
             zero::PassOrder::vertical},
        Case{"vertical_states_cpu", llama(), 1, 2, 3, 0, DType::f32, false, false,
             zero::Determinism::run, zero::OffloadDevice::cpu, zero::OffloadDevice::none,
             zero::PassOrder::vertical},
        resident(Case{"resident_half", gpt2(), 3, 2, 4, 0, DType::bf16, true}, 60'000),
        resident(Case{"resident_all", llama(), 3, 3, 3, 1, DType::f32, true}, 1 << 30),
        resident(Case{"resident_one_batch", gpt2(), 3, 2, 1, 0, DType::bf16, true}, 60'000),
        resident(Case{"resident_vertical", gpt2(), 3, 2, 3, 1, DType::bf16, true, true,
                      zero::Determinism::run, zero::OffloadDevice::cpu, zero::OffloadDevice::nvme,
                      zero::PassOrder::vertical},
                 60'000),
        resident(Case{"resident_nvme", gpt2(), 3, 2, 3, 0, DType::bf16, true, false,
                      zero::Determinism::run, zero::OffloadDevice::nvme, zero::OffloadDevice::nvme},
                 60'000),
        resident(beside_forward(Case{"resident_late", gpt2(), 3, 2, 3, 0, DType::bf16, true, false,
                                     zero::Determinism::run, zero::OffloadDevice::cpu}),
                 60'000),
        recomputes_first(Case{"recompute_first", gpt2(), 3, 2, 2}, 1),
        selective(Case{"selective_0_1", gpt2(), 0, 1, 1, 0, DType::f32}),
        selective(recomputes_first(Case{"selective_3_2", llama(), 3, 2, 2}, 1)),
        split(Case{"gpt2_1_2_split", gpt2(), 1, 2, 2}, 0.4),
        split(Case{"gpt2_2_1_split", gpt2(), 2, 1, 1, 0, DType::f32}, 0.3),
        split(Case{"llama_3_3_split_bounds", llama(), 3, 3, 2, 1, DType::bf16, true}, 0.4),
        split(Case{"gpt2_2_2_split_to_nothing", gpt2(), 2, 2}, 0.0),
        split(Case{"gpt2_3_1_split_streamed", gpt2(), 3, 1, 3, 0, DType::bf16, true, false,
                   zero::Determinism::run, zero::OffloadDevice::cpu, zero::OffloadDevice::nvme,
                   zero::PassOrder::vertical, false, zero::OffloadStep::device},
              0.3),
        side_by_side(Case{"gpt2_3_2_side_by_side", gpt2(), 3, 2, 2, 1}),
        side_by_side(Case{"llama_1_2_host_side_by_side", llama(), 1, 2, 1, 2, DType::bf16, false,
                          true}),
        inputs_on_nvme(Case{"inputs_nvme", gpt2(), 0, 1, 2, 1}),
        inputs_on_nvme(Case{"all_and_inputs_nvme", gpt2(), 3, 2, 2, 1, DType::bf16, true, false,
                            zero::Determinism::run, zero::OffloadDevice::nvme,
                            zero::OffloadDevice::nvme}),
        inputs_on_nvme(Case{"vertical_inputs_nvme", llama(), 3, 2, 3, 1, DType::bf16, true, false,
                            zero::Determinism::run, zero::OffloadDevice::cpu,
                            zero::OffloadDevice::nvme, zero::PassOrder::vertical}),
        gradients_on_nvme(Case{"gradients_nvme", gpt2(), 2, 1}),
        gradients_on_nvme(Case{"gradients_nvme_accumulation", gpt2(), 2, 2, 3}),
        gradients_on_nvme(Case{"gradients_nvme_boundary", llama(), 1, 2, 2, 0, DType::f32}),
        gradients_on_nvme(inputs_on_nvme(Case{
            "everything_nvme", gpt2(), 3, 3, 2, 1, DType::bf16, true, false, zero::Determinism::run,
            zero::OffloadDevice::nvme, zero::OffloadDevice::nvme})),
        gradients_on_nvme(Case{"vertical_gradients_nvme", llama(), 3, 2, 3, 1, DType::bf16, true,
                               false, zero::Determinism::world, zero::OffloadDevice::nvme,
                               zero::OffloadDevice::nvme, zero::PassOrder::vertical}),
        beside_forward(split(Case{"gpt2_1_2_beside_forward", gpt2(), 1, 2, 2}, 1.0)),
        beside_forward(split(
            Case{"llama_3_3_beside_forward", llama(), 3, 3, 2, 1, DType::bf16, true, true}, 0.4)),
        beside_backward(split(Case{"gpt2_2_1_beside_backward", gpt2(), 2, 1, 2, 0, DType::f32},
                              1.0)),
        beside_backward(split(
            Case{"llama_3_2_beside_backward", llama(), 3, 2, 2, 1, DType::f32, true, true}, 0.4)),
        Case{"lora_2_2_cpu", with_lora(gpt2()), 2, 2, 2, 1, DType::bf16, false, false,
             zero::Determinism::run, zero::OffloadDevice::cpu},
        Case{"lora_3_2_nvme", with_lora(llama()), 3, 2, 1, 1, DType::bf16, true, false,
             zero::Determinism::run, zero::OffloadDevice::nvme, zero::OffloadDevice::nvme},
        Case{"nf4_0_1", with_quantized_base(gpt2(), BlockFormat::nf4), 0, 1, 2},
        Case{"nf4_2_2_cpu", with_quantized_base(gpt2(), BlockFormat::nf4), 2, 2, 2, 1, DType::bf16,
             false, false, zero::Determinism::run, zero::OffloadDevice::cpu},
        Case{"nf4_3_2", with_quantized_base(llama(), BlockFormat::nf4), 3, 2, 1, 1},
        Case{"int8_3_3_cpu", with_quantized_base(llama(), BlockFormat::int8), 3, 3, 2, 1,
             DType::bf16, true, false, zero::Determinism::run, zero::OffloadDevice::cpu,
             zero::OffloadDevice::cpu},
        Case{"nf4_3_2_nvme", with_quantized_base(llama(), BlockFormat::nf4), 3, 2, 1, 1,
             DType::bf16, true, false, zero::Determinism::run, zero::OffloadDevice::nvme,
             zero::OffloadDevice::nvme},
        Case{"llama_0_2", llama(), 0, 2}, Case{"llama_1_3", llama(), 1, 3, 2},
        Case{"llama_2_2_recompute", llama(), 2, 2, 1, 1},
        Case{"llama_3_3_bounds", llama(), 3, 3, 2, 1, DType::bf16, true}),
    [](const auto& info) { return std::string(info.param.name); });

// The system's view: what the process maps while the run lasts, counted outside zinc.
TEST(Plan, ReservedBytes_AreWhatTheProcessMaps) {
  if (!files::MappedBytes::works) GTEST_SKIP() << "a sanitizer owns mmap";
  for (const Case& c : {Case{"", gpt2(), 0, 1, 2}, Case{"", llama(), 3, 1, 1, 1}}) {
    const Plan plan =
        make_plan(c.model, config_of(c), {.world = 1, .seq = kSeq, .backend = "single"});
    run(c);  // libraries set themselves up
    const Tokens data;
    const train::Config config = config_of(c);
    const files::MappedBytes mapped;
    comm::World world = single_world();
    const auto model = hub::make_model(c.model.config);
    zero::Engine engine(*model, config.engine, world, {.total_steps = 2});
    data::Loader loader(data,
                        {.micro_batch = 2, .seq_len = kSeq, .seed = 5, .prefetch_batches = 0});
    train::Trainer trainer(engine, loader, nullptr, {}, nullptr, {.steps = 2});
    trainer.run();
    engine.read_own(zero::Engine::Own::weights_and_states, {});
    EXPECT_EQ(mapped.live(), plan.fullest.peaks.reserved[0].peak);
  }
}

// A run that goes on from a checkpoint, and saves others, beside training where that is possible.
TEST(Plan, CountsLoadingAndSaving) {
  for (Case c : {Case{"", gpt2(), 0, 2}, Case{"", llama(), 3, 3, 2, 1, DType::bf16, true},
                 Case{"", gpt2(), 2, 2, 1, 0, DType::f16, false, false, zero::Determinism::run,
                      zero::OffloadDevice::nvme}}) {
    SCOPED_TRACE(str("stage ", c.stage));
    train::Config config = config_of(c);
    config.checkpoint.every = 1;
    const Plan plan =
        make_plan(c.model, config, {.world = c.world, .seq = kSeq, .backend = "local"});
    const Tokens data;
    const files::ScratchFolder folder;
    for (const bool resumes : {false, true}) {
      comm::run_local_ranks(c.world, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
        const auto model = hub::make_model(c.model.config);
        zero::Engine engine(*model, config.engine, world, {.total_steps = 6});
        if (resumes) train::load_checkpoint(engine, folder.path());
        data::Loader loader(data, {.micro_batch = 2,
                                   .seq_len = kSeq,
                                   .seed = 5,
                                   .rank = world.rank(),
                                   .world = world.size()});
        const data::EvaluationSet evaluation(data, {.batch = 2,
                                                    .seq_len = kSeq,
                                                    .max_samples = 8,
                                                    .rank = world.rank(),
                                                    .world = world.size()});
        train::CheckpointSaver saver(engine, folder.path());
        train::Trainer trainer(engine, loader, &evaluation, {}, nullptr,
                               {.steps = engine.state().steps + 3},
                               {.checkpoint_every = 1, .checkpoint = [&](bool last) {
                                  if (saver.is_pending()) saver.finish();
                                  saver.begin({}, {}, config.saves_beside() && !last);
                                }});
        trainer.run();
        saver.finish();
        if (!resumes) return;
        for (int tier = 0; tier < kNumTiers; ++tier) {
          const auto of = static_cast<Tier>(tier);
          EXPECT_EQ(world.context().allocator().report().at(of).peak,
                    plan.fullest.peaks.at(of).peak)
              << name_of(of) << " of rank " << world.rank();
        }
      });
    }
  }
}

class StopsIn final : public train::TrainerObserver {
 public:
  explicit StopsIn(int64_t step) : step_(step) {}
  void on_step(const train::StepMetrics& metrics, const train::Progress&) override {
    if (metrics.step + 1 == step_) stop = true;
  }
  std::atomic<bool> stop = false;

 private:
  int64_t step_;
};

// A run without intervals saves when it is told to stop, and takes no more than one that is not.
TEST(Plan, CountsASaveThatASignalAsksFor) {
  for (const Case& c :
       {Case{"", gpt2(), 0, 2}, Case{"", with_lora(llama()), 2, 2, 1, 0, DType::f16},
        Case{"", llama(), 3, 2, 2, 1, DType::bf16, false, false, zero::Determinism::run,
             zero::OffloadDevice::nvme}}) {
    SCOPED_TRACE(str("stage ", c.stage));
    const train::Config config = config_of(c);
    const Plan plan = make_plan(
        c.model, config, {.world = c.world, .seq = kSeq, .backend = "local", .evaluate = false});
    const Tokens data;
    const files::ScratchFolder folder;
    for (const bool is_stopped : {false, true}) {
      const std::string out = folder / (is_stopped ? "stopped" : "whole");
      comm::run_local_ranks(c.world, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
        const auto model = hub::make_model(c.model);
        data::Loader loader(data, {.micro_batch = 2,
                                   .seq_len = kSeq,
                                   .seed = 5,
                                   .rank = world.rank(),
                                   .world = world.size()});
        StopsIn observer(is_stopped ? 3 : 0);
        zinc::train::Run run(world, config, {.out = out, .steps = 5},
                             {.model = &c.model, .stop = &observer.stop});
        run.begin();
        run.make_engine(*model);
        EXPECT_EQ(run.train(loader, {}, &observer).steps, is_stopped ? 3 : 5);
        run.end();
        EXPECT_EQ(run.last_checkpoint(), is_stopped ? "checkpoints/step-000003" : "");
        for (int tier = 0; tier < kNumTiers; ++tier) {
          const auto of = static_cast<Tier>(tier);
          EXPECT_EQ(world.context().allocator().report().at(of).peak,
                    plan.fullest.peaks.at(of).peak)
              << name_of(of) << " of rank " << world.rank() << (is_stopped ? ", stopped" : "");
        }
      });
    }
  }
}

TEST(Plan, OfAHugeWorldTakesNoMemoryAndNamesTheMoment) {
  Case c{"", llama(), 3, 4096};
  const Plan plan = make_plan(c.model, config_of(c), {.world = 4096, .seq = kSeq});
  EXPECT_GT(plan.fullest.device_peak(), 0);
  EXPECT_NE(plan.fullest.peak_moment.find("micro-batch"), std::string::npos)
      << plan.fullest.peak_moment;
  EXPECT_EQ(plan.tokens_per_step, 4096 * 2 * kSeq);
}

TEST(Plan, KernelsOfAStep_AddUpToTheirFlop) {
  const Case c{"", gpt2(), 2, 2};
  const Plan plan = make_plan(c.model, config_of(c), {.world = 2, .seq = kSeq});
  int64_t flops = 0;
  std::set<std::string> names;
  for (const KernelFigures& kernel : plan.fullest.kernels) {
    EXPECT_GT(kernel.launches, 0) << kernel.name;
    EXPECT_FALSE(kernel.seconds.has_value()) << kernel.name;
    flops += kernel.flops;
    names.insert(kernel.name);
  }
  EXPECT_EQ(flops, plan.fullest.kernel_flops);
  for (const char* const name : {"gemm", "attention", "attention_backward", "layernorm", "adamw"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_NE(describe_kernels(plan).find("attention_backward"), std::string::npos);
  EXPECT_NE(json_of(plan).find("\"kernels_per_step\""), std::string::npos);
}

hub::ModelConfigFile small_llama(int64_t features, int64_t hidden, int64_t layers,
                                 int64_t kv_heads) {
  nn::LlamaConfig config;
  config.vocab_size = 64;
  config.max_positions = 64;
  config.hidden_size = features;
  config.intermediate_size = hidden;
  config.num_layers = layers;
  config.num_heads = 4;
  config.num_kv_heads = kv_heads;
  return {.config = config};
}

// A pass over x and one over the gradient make the codes of both products that take them; a weight
// is encoded for each of its products. A scale is found once.
TEST(Plan, ProductsInEightBits_EncodeOnce) {
  constexpr int64_t kWidth = 64, kHidden = 128, kTokens = 2 * 64;
  Case c{"", small_llama(kWidth, kHidden, 1, 2)};
  train::Config config = config_of(c);
  config.engine.precision.dtype = DType::bf16;
  config.engine.batch = {.micro_batch = 2, .accumulation = 1};
  config.engine.fp8 = true;
  const auto plan = [&](bool selective) {
    config.engine.recompute.selective = selective;
    return make_plan(c.model, config, {.seq = 64, .device = {.kind = DeviceKind::cuda}});
  };
  const Plan kept = plan(false);
  const auto encoding = std::ranges::find(kept.fullest.kernels, "fp8_encode", &KernelFigures::name);
  ASSERT_NE(encoding, kept.fullest.kernels.end());
  // Widths of inputs and of results: q, k and v; o; gate and up; down.
  constexpr int64_t kIn[] = {kWidth, kWidth, kWidth, kHidden},
                    kOut[] = {2 * kWidth, kWidth, 2 * kHidden, kWidth};
  int64_t read = 0, written = 0;
  for (size_t i = 0; i < 4; ++i) {
    read += (kIn[i] + kOut[i]) * kTokens * 4 + kIn[i] * kOut[i] * 6;
    written += (kIn[i] + kOut[i]) * kTokens * 2 + kIn[i] * kOut[i] * 2;
  }
  EXPECT_EQ(encoding->bytes_read, read);
  EXPECT_EQ(encoding->bytes_written, written);
  const auto decodes = [](const Plan& plan) {
    return std::ranges::count(plan.fullest.kernels, "fp8_decode", &KernelFigures::name);
  };
  EXPECT_EQ(decodes(kept), 0);
  EXPECT_LT(plan(true).fullest.device_peak(), kept.fullest.device_peak());
}

// Bytes that kernels other than products and attention move for one layer on a GPU, in arrays of
// [tokens, features]. The bytes that a step moves for weights do not grow with the batch, and
// cancel out; so do parts of sums, of which batches of these sizes have equal numbers (Note [Split
// sums]).
std::map<std::string, double> passes_of_a_layer(
    hub::ModelConfigFile (*model)(int64_t layers), int64_t features,
    kernels::WgmmaUse wgmma = kernels::WgmmaUse::by_table) {
  constexpr int64_t kTokens = 64, kMore = 512;
  std::map<std::string, double> passes;
  for (const int64_t layers : {2, 3}) {
    for (const int64_t batch : {kMore, 2 * kMore}) {
      Case c{"", model(layers)};
      train::Config config = config_of(c);
      config.engine.batch.micro_batch = batch;
      config.engine.wgmma = wgmma;
      const Plan plan =
          make_plan(c.model, config, {.seq = kTokens, .device = {.kind = DeviceKind::cuda}});
      const double sign = (layers == 3) == (batch == 2 * kMore) ? 1.0 : -1.0;
      for (const KernelFigures& kernel : plan.fullest.kernels) {
        if (kernel.kind != WorkKind::other) continue;
        passes[kernel.name] += sign *
                               static_cast<double>(kernel.bytes_read + kernel.bytes_written) /
                               static_cast<double>(kMore * kTokens * features * 2);
      }
    }
  }
  std::erase_if(passes, [](const auto& one) { return std::abs(one.second) < 0.05; });
  for (auto& [name, count] : passes) count = std::round(count);
  return passes;
}

// A pass that a change adds to a layer, or takes from it, shows here.
TEST(Plan, PassesOverActivations_OfALayer) {
  const auto gpt2_of = [](int64_t layers) {
    nn::Gpt2Config config;
    config.vocab_size = 64;
    config.max_positions = 64;
    config.hidden_size = 768;
    config.num_layers = layers;
    config.num_heads = 12;
    return hub::ModelConfigFile{.config = config};
  };
  // Forward: two norms; products add to the residual stream. Backward: norms that add the gradient
  // of that stream. GELU and its derivative, of 4 x 768 features, are passes behind products, and
  // sums of biases of their own, unless our own kernel multiplies.
  std::map<std::string, double> passes{{"layernorm", 4}, {"layernorm_backward", 8}};
  EXPECT_EQ(passes_of_a_layer(gpt2_of, 768, kernels::WgmmaUse::always), passes);
  passes["gemm_epilogue"] = 20;
  passes["reduce"] = 9;
  EXPECT_EQ(passes_of_a_layer(gpt2_of, 768), passes);
  const auto llama_of = [](int64_t layers) { return small_llama(256, 1024, layers, 1); };
  // The passes of the gradients of silu(gate) * up, of 4 x 256 features, change in the same way.
  passes = {{"rmsnorm", 4}, {"rotary", 5}, {"swiglu", 12}, {"rmsnorm_backward", 8}};
  EXPECT_EQ(passes_of_a_layer(llama_of, 256, kernels::WgmmaUse::always), passes);
  passes["gemm_epilogue"] = 20;
  EXPECT_EQ(passes_of_a_layer(llama_of, 256), passes);
}

// The weights of one product lie side by side in a shard group and are not copied. Where a weight
// ends within a chunk, the next one does not lie behind it.
TEST(Plan, WeightsOfOneProduct_AreTakenWhereTheyLie) {
  const auto copied = [](int64_t features, int stage, DeviceKind device) {
    Case c{"", small_llama(features, 2 * features, 2, 2), stage, 2};
    train::Config config = config_of(c);
    const Plan plan = make_plan(
        c.model, config, {.world = 2, .seq = kSeq, .device = {.kind = device}, .backend = "local"});
    int64_t bytes = 0;
    for (const KernelFigures& kernel : plan.fullest.kernels) {
      if (kernel.name == "copy") bytes += kernel.bytes_written;
    }
    return bytes;
  };
  for (const int stage : {0, 3}) {
    for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
      EXPECT_EQ(copied(64, stage, device), 0) << stage;
      EXPECT_GT(copied(40, stage, device), 0) << stage;
    }
  }
}

TEST(Plan, CheapestChange_NamesTheFirstThatFits) {
  Case c{"", gpt2(), 0, 4};
  const PlanOptions options{.world = 4, .seq = kSeq, .backend = "local"};
  const auto peak_of = [&](int stage) {
    Case changed = c;
    changed.stage = stage;
    return make_plan(c.model, config_of(changed), options).fullest.device_peak();
  };
  ASSERT_LT(peak_of(1), peak_of(0));
  const auto change = cheapest_change(c.model, config_of(c), options, peak_of(1));
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->words, "\"stage\": 1");
  EXPECT_EQ(change->device_peak, peak_of(1));
  EXPECT_FALSE(cheapest_change(c.model, config_of(c), options, 1000).has_value());
}

// Recomputation and an order that makes gradients of weights apart do not go together.
TEST(Plan, CheapestChange_OfAPipelineThatSplitsBackward_HasAnotherOrder) {
  Case c{"", gpt2(), 2, 2};
  c.accumulation = 4;
  train::Config config = config_of(c);
  config.mesh.pipe = 2;
  config.engine.pipeline.schedule = parallel::PipelineSchedule::zero_bubble;
  const PlanOptions options{.world = 2, .seq = kSeq, .backend = "local"};
  train::Config recomputed = config;
  recomputed.engine.pipeline.schedule = parallel::PipelineSchedule::one_forward_one_backward;
  recomputed.engine.recompute.every_blocks = 1;
  const int64_t peak = make_plan(c.model, recomputed, options).fullest.device_peak();
  ASSERT_LT(peak, make_plan(c.model, config, options).fullest.device_peak());
  const auto change = cheapest_change(c.model, config, options, peak);
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->words, "recomputation of every block with \"pipeline_schedule\": \"1f1b\"");
  EXPECT_EQ(change->device_peak, peak);
}

TEST(Estimator, IsDeepSpeedsTable) {
  // Printed by deepspeed 0.19.8, with `cpu` padded to four characters as its documentation shows.
  EXPECT_EQ(deepspeed_estimate({.num_parameters = 2'851'000'000,
                                .largest_layer = 32'000'000,
                                .gpus_per_node = 8,
                                .num_nodes = 2}),
            "Estimated memory needed for params, optim states and gradients for a:\n"
            "HW: Setup with 2 nodes, 8 GPUs per node.\n"
            "SW: Model with 2851M total params.\n"
            "  per CPU  |  per GPU |   Options\n"
            "  254.90GB |   5.31GB | offload_optimizer=cpu \n"
            "  127.45GB |   8.30GB | offload_optimizer=none\n"
            "Estimated memory needed for params, optim states and gradients for a:\n"
            "HW: Setup with 2 nodes, 8 GPUs per node.\n"
            "SW: Model with 2851M total params, 32M largest layer params.\n"
            "  per CPU  |  per GPU |   Options\n"
            "   35.85GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1\n"
            "  127.45GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , zero_init=0\n"
            "   31.86GB |   0.45GB | offload_param=none, offload_optimizer=cpu , zero_init=1\n"
            "  127.45GB |   0.45GB | offload_param=none, offload_optimizer=cpu , zero_init=0\n"
            "    1.43GB |   3.11GB | offload_param=none, offload_optimizer=none, zero_init=1\n"
            "  127.45GB |   3.11GB | offload_param=none, offload_optimizer=none, zero_init=0\n");
  const ParameterCounts counts = count_parameters({.config = nn::Gpt2Config::preset("gpt2-124m")});
  EXPECT_EQ(counts.num_parameters, 124'439'808);
  EXPECT_EQ(counts.largest_layer, 50257 * 768);
}

}  // namespace plan_test
}  // namespace zinc::plan
