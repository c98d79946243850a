// The same bits whatever the memory strategy, for configurations that nobody chose: what decides
// bits is drawn by a seed, then several ways to keep the memory, and all are compared with stage 0
// and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>

#include "core/error.h"
#include "offload/swap_space.h"
#include "tests/core/draw.h"
#include "tests/equivalence/placement_run.h"
#include "tests/offload/swap_folder.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace drawn_test {

using namespace test;
using zinc::test::Draw;

constexpr int kSeeds = 40;
constexpr int kWays = 3;
constexpr int kSteps = 2;

// The settings that decide bits.
struct Drawn {
  Case c;
  EngineConfig config;
};

Drawn draw_numerics(Draw& draw) {
  Case c;
  c.family = draw.named("family",
                        {Family::gpt2, Family::llama, Family::t5, Family::roberta, Family::bloom});
  c.dropout = draw.one_of("dropout", {0.0, 0.1});
  c.world = draw.one_of("world", {1, 2, 2, 3});
  c.accumulation = draw.one_of<int64_t>("accumulation", {1, 2, 3});
  c.dtype = draw.named("dtype", {DType::f32, DType::f32, DType::bf16, DType::f16});
  c.schedule = draw.named("schedule", {ReduceSchedule::boundary, ReduceSchedule::micro_step,
                                       ReduceSchedule::micro_step});
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(c.world));
  if (power_of_two && c.schedule == ReduceSchedule::micro_step) {
    c.determinism =
        draw.named("determinism", {Determinism::run, Determinism::run, Determinism::world});
  }
  c.moments = draw.named("moments", {optim::Moments::f32, optim::Moments::bf16});
  const bool may_be_fp8 = c.dtype == DType::bf16 && c.determinism == Determinism::run;
  c.fp8 = may_be_fp8 && draw.one_of("fp8", {false, false, true});
  c.narrow_logits = draw.flip("narrow_logits");
  c.narrow_weights = c.dtype == DType::bf16 && draw.flip("narrow_weights");
  if (draw.flip("wire_given")) c.wire = draw.named("wire", {DType::f32, DType::bf16, DType::f16});
  EngineConfig config = config_of(c);
  config.batch.sequence = 9;
  if (c.dtype == DType::f16) {
    config.precision.loss_scale.initial_scale_power = draw.one_of("scale", {4, 12, 21});
  }
  config.gradient.clipping = draw.one_of("clipping", {0.0, 0.5});
  config.label_smoothing = draw.one_of("smoothing", {0.0, 0.1});
  if (c.determinism == Determinism::run && c.accumulation > 1 && draw.flip("sums_given")) {
    config.gradient.accumulation_dtype = draw.named("sums", {DType::f32, c.dtype});
  }
  c.unequal = draw.flip("unequal");
  using optim::OptimizerKind;
  config.optimizer.kind = c.rule = draw.named(
      "rule", {OptimizerKind::adamw, OptimizerKind::muon, OptimizerKind::lamb,
               c.moments == optim::Moments::f32 ? OptimizerKind::adafactor : OptimizerKind::adamw});
  return {c, config};
}

void draw_recomputation(Draw& draw, const std::string& folder, RecomputeConfig& recompute) {
  recompute.every_blocks = draw.one_of<int64_t>("recompute", {0, 1, 1, 2});
  recompute.selective = draw.flip("selective");
  if (!recompute.is_on()) return;
  if (draw.one_of("part", {false, false, true})) recompute.most_blocks = 2;
  recompute.contiguous_memory_optimization = draw.flip("side_by_side");
  const auto on =
      draw.named("inputs", {OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme});
  recompute.cpu_checkpointing = on == OffloadDevice::cpu;
  if (on == OffloadDevice::nvme) recompute.offload = {.device = on, .nvme_path = folder};
}

void draw_tiers(Draw& draw, const std::string& folder, EngineConfig& config) {
  const auto devices = {OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme};
  ZeroConfig& zero = config.zero;
  config.aio.block_size = 4096;
  if (zero.stage >= 1) {
    zero.offload_optimizer = {.device = draw.named<OffloadDevice>("states", devices),
                              .nvme_path = folder,
                              .pipeline_read = draw.flip("pipeline_read"),
                              .pipeline_write = draw.flip("pipeline_write")};
    zero.sub_group_size = draw.one_of<int64_t>("sub_group", {2048, 50'000});
    if (zero.offload_optimizer.device == OffloadDevice::cpu) {
      zero.offload_optimizer.ratio = draw.one_of("ratio", {1.0, 0.4});
      config.offload_step = draw.named("offload_step", {OffloadStep::host, OffloadStep::device});
    }
    if (draw.flip("overlap_update_given")) config.overlap_update = draw.flip("overlap_update");
  }
  if (zero.stage == 3) {
    zero.offload_param = {.device = draw.named<OffloadDevice>("parameters", devices),
                          .nvme_path = folder,
                          .buffer_count = 2,
                          .buffer_size = 2048,
                          .max_in_cpu = draw.one_of<int64_t>("in_cpu", {0, 20'000})};
  }
}

// A way to keep the memory of it. Decides no bit.
EngineConfig draw_way(Draw& draw, const std::string& folder, const Drawn& of) {
  EngineConfig config = of.config;
  ZeroConfig& zero = config.zero;
  const bool every = of.c.accumulation == 1 || of.c.schedule == ReduceSchedule::micro_step;
  zero.stage = every ? draw.one_of("stage", {0, 1, 2, 3, 3}) : draw.one_of("stage", {0, 1});
  zero.reduce_bucket_size = draw.one_of<int64_t>("reduce_bucket", {1, 9000, 500'000'000});
  zero.allgather_bucket_size = draw.one_of<int64_t>("allgather_bucket", {1, 9000, 500'000'000});
  zero.overlap_comm = draw.flip("overlap_comm");
  zero.prefetch_bucket_size = draw.one_of<int64_t>("prefetch", {0, 8000, 50'000'000});
  zero.max_reuse_distance = draw.one_of<int64_t>("reuse", {0, 1'000'000'000});
  if (every && draw.flip("vertical")) config.pass_order = PassOrder::vertical;
  draw_tiers(draw, folder, config);
  draw_recomputation(draw, folder, config.recompute);
  const bool partial_sums = config.spans_worlds() && of.c.accumulation != config.batches_together();
  if (zero.offload_optimizer.device == OffloadDevice::nvme && !partial_sums &&
      draw.flip("gradients_on_nvme")) {
    config.gradient_offload = GradientOffload::nvme;
  }
  return config;
}

class DrawnStrategies : public testing::TestWithParam<int> {};

// A gradient of a skipped step may be no number, which equals nothing.
bool has_same_bits(const Outcome& a, const Outcome& b) {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  return a.losses == b.losses && a.norms == b.norms &&
         std::ranges::equal(a.values, b.values, {}, bits, bits);
}

void expect_bits_of_stage_0(uint64_t seed) {
  const offload::SwapFolder folder;
  Draw draw(seed);
  const Drawn drawn = draw_numerics(draw);
  const std::string numerics = draw.words();
  EngineConfig plain = drawn.config;
  plain.zero.stage = 0;
  const Outcome reference = run(drawn.c, plain, kSteps);
  for (int way = 0; way < kWays; ++way) {
    Draw of_way(seed * 1000 + static_cast<uint64_t>(way));
    const EngineConfig config = draw_way(of_way, folder.path(), drawn);
    SCOPED_TRACE(str("seed ", seed, ":", numerics, ", kept by", of_way.words()));
    RunOptions options;
    if (of_way.flip("shuffled")) {
      options = {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed};
    }
    try {
      EXPECT_TRUE(has_same_bits(run(drawn.c, config, kSteps, options), reference));
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_TRUE(folder.is_empty());
}

TEST_P(DrawnStrategies, ChangeNoBit) { expect_bits_of_stage_0(static_cast<uint64_t>(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnStrategies, testing::Range(1, kSeeds + 1));

}  // namespace drawn_test
}  // namespace zinc::zero
