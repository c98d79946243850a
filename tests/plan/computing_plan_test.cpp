// The plan of a model that is asked and not trained is the peak of an engine that only computes.
#include "plan/computing_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "data/loader.h"
#include "files/json/parser.h"
#include "generate/texts_of_ranks.h"
#include "hub/model.h"
#include "tests/plan/tiny_run.h"
#include "zero/engine.h"

namespace zinc::plan {
namespace computing_plan_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using tiny_run::gpt2;
using tiny_run::kSeq;
using tiny_run::llama;
using tiny_run::Tokens;

hub::ModelConfigFile quantized(hub::ModelConfigFile model) {
  model.tuning.lora = nn::LoraOptions{.rank = 4, .targets = {"all-linear"}};
  model.tuning.quantize = BlockFormat::nf4;
  return model;
}

struct Case {
  const char* name;
  hub::ModelConfigFile model;
  int stage = 0;
  int world = 1;
  DType dtype = DType::bf16;
  zero::OffloadDevice parameters = zero::OffloadDevice::none;
  bool small_bounds = false;
};

train::Config config_of(const Case& c) {
  train::Config config;
  config.seed = 5;
  zero::EngineConfig& engine = config.engine;
  // Settings of steps take nothing.
  engine.batch = {.micro_batch = 2, .accumulation = 3};
  engine.precision.dtype = c.dtype;
  engine.zero.stage = c.stage;
  if (c.stage > 0) engine.zero.offload_optimizer.device = zero::OffloadDevice::cpu;
  engine.zero.offload_param = {.device = c.parameters,
                               .nvme_path = testing::TempDir(),
                               .buffer_count = 3,
                               .buffer_size = 4096,
                               .max_in_cpu = 0};
  if (c.small_bounds) {
    engine.zero.max_live_parameters = 0;
    engine.zero.max_reuse_distance = 0;
    engine.zero.prefetch_bucket_size = 10'000;
    engine.zero.allgather_bucket_size = 5'000;
  }
  return config;
}

constexpr PlannedTexts kTexts{.count = 2, .prompt_tokens = 5, .new_tokens = 9};

MemoryReport real(const Case& c, int rank, const PlannedTexts& texts) {
  MemoryReport memory;
  const Tokens data(24);
  comm::run_local_ranks(c.world, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    const auto model = hub::make_model(c.model);
    zero::EngineConfig config = config_of(c).engine;
    config.batch.sequence = kSeq;
    zero::Engine engine(*model, config, world, {.computes_only = true});
    const data::EvaluationSet batches(
        data, {.batch = 2, .seq_len = kSeq, .rank = world.rank(), .world = world.size()});
    for (int64_t round = 0; round < batches.num_rounds(); ++round) {
      engine.evaluate(batches.batch(round));
    }
    if (texts.count > 0) {
      generate::write_texts(
          engine,
          std::vector<std::vector<int32_t>>(
              2, std::vector<int32_t>(static_cast<size_t>(texts.prompt_tokens), world.rank() + 1)),
          {.max_tokens = texts.new_tokens, .sampling = {.temperature = 0.0}});
    }
    if (world.rank() == rank) memory = world.context().allocator().report();
  });
  return memory;
}

class ComputingPlanned : public testing::TestWithParam<Case> {};

TEST_P(ComputingPlanned, Peaks_AreThoseOfARealEngine_WithoutGradientsAndStates) {
  const Case& c = GetParam();
  for (const PlannedTexts& texts : {PlannedTexts{}, kTexts}) {
    SCOPED_TRACE(texts.count);
    const ComputingPlan plan = make_computing_plan(
        c.model, config_of(c),
        {.world = c.world, .seq = kSeq, .backend = c.world == 1 ? "single" : "local"}, texts);
    for (int rank = 0; rank < c.world; ++rank) {
      const MemoryReport memory = real(c, rank, texts);
      for (int t = 0; t < kNumTiers; ++t) {
        const auto tier = static_cast<Tier>(t);
        EXPECT_EQ(memory.at(tier).peak, plan.rank.peaks.at(tier).peak) << name_of(tier);
        EXPECT_EQ(memory.reserved[static_cast<size_t>(t)].peak,
                  plan.rank.peaks.reserved[static_cast<size_t>(t)].peak);
        for (int l = 0; l < kNumLabels; ++l) {
          const auto label = static_cast<Label>(l);
          // Ranks load parts of other sizes; the tier's peak comes later.
          if (label == Label::staging && c.stage == 3) continue;
          EXPECT_EQ(memory.at(tier, label).peak, plan.rank.peaks.at(tier, label).peak)
              << name_of(tier) << ", " << name_of(label);
        }
        EXPECT_EQ(plan.rank.peaks.at(tier, Label::gradients).peak, 0);
        EXPECT_EQ(plan.rank.peaks.at(tier, Label::optimizer).peak, 0);
      }
    }
    EXPECT_GT(plan.rank.peaks.at(Tier::device, Label::parameters).peak, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ComputingPlanned,
    testing::Values(
        Case{"gpt2_0_1", gpt2()}, Case{"gpt2_0_2", gpt2(), 0, 2}, Case{"gpt2_3_1", gpt2(), 3, 1},
        Case{"gpt2_3_2", gpt2(), 3, 2}, Case{"gpt2_1_2_f32", gpt2(), 1, 2, DType::f32},
        Case{"llama_3_2_f32", llama(), 3, 2, DType::f32}, Case{"llama_2_3", llama(), 2, 3},
        Case{"llama_3_3_bounds", llama(), 3, 3, DType::bf16, zero::OffloadDevice::none, true},
        Case{"gpt2_3_2_cpu", gpt2(), 3, 2, DType::bf16, zero::OffloadDevice::cpu},
        Case{"llama_3_2_nvme", llama(), 3, 2, DType::bf16, zero::OffloadDevice::nvme},
        Case{"nf4_0_1", quantized(llama())}, Case{"nf4_3_2", quantized(gpt2()), 3, 2}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ComputingPlan, TakesLessThanThatOfATraining_AndSaysSo) {
  const Case c{"", gpt2(), 3, 2};
  const PlanOptions options{.world = 2, .seq = kSeq, .backend = "local"};
  const ComputingPlan plan = make_computing_plan(c.model, config_of(c), options);
  train::Config training = config_of(c);
  training.engine.zero.offload_optimizer = {};
  EXPECT_LT(3 * plan.rank.device_peak(),
            make_plan(c.model, training, options).fullest.device_peak());
  EXPECT_EQ(plan.rank.step.count("reduce_scatter"), 0u);
  EXPECT_GT(plan.rank.step.at("all_gather").bytes_sent, 0);
  EXPECT_THAT(describe(plan), AllOf(HasSubstr("2 ranks, nothing is trained"),
                                    HasSubstr("parameters"), HasSubstr("peak: evaluation"),
                                    Not(HasSubstr("gradients")), Not(HasSubstr("optimizer"))));
  const files::json::Value json = files::json::parse(json_of(plan), "plan");
  EXPECT_EQ(json.at("peak_bytes").as_int64(), plan.rank.device_peak());
  EXPECT_EQ(json.at("collectives_per_evaluation").as_array().size(), plan.rank.step.size());
}

}  // namespace computing_plan_test
}  // namespace zinc::plan
