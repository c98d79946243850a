// "auto" that fills memory: what fits, what a run takes of it, and what it is worth.
#include "plan/fill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "files/json/writer.h"
#include "hub/model.h"
#include "plan/fit_space.h"
#include "train/trainer.h"
#include "zero/layout/shard_group.h"

namespace zinc::plan {
namespace fill_test {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kWorld = 2;
constexpr int64_t kSeq = 24;

// A model 64 wide; with 512 each block is larger than a segment of the allocator.
hub::ModelConfigFile gpt2(int64_t hidden = 64, int64_t layers = 6) {
  nn::Gpt2Config config;
  config.vocab_size = 61;
  config.max_positions = 32;
  config.hidden_size = hidden;
  config.num_layers = layers;
  config.num_heads = 4;
  return {.config = config};
}

const char* const kNothing = R"("stage": 3, "stage3_param_persistence_threshold": 0,
    "stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 1000000000)";

train::Config parse(const std::string& zero, const std::string& top = "",
                    int64_t accumulation = 5) {
  return train::parse_config(str(R"({"train_micro_batch_size_per_gpu": 1,
      "gradient_accumulation_steps": )",
                                 accumulation, R"(, "optimizer": {"type": "AdamW",
      "params": {"lr": 1e-3}}, )",
                                 top, R"("zero_optimization": {)", zero, "}}"),
                             "test.json", kWorld);
}

std::string stage_3(const std::string& more) { return str(kNothing, ", ", more); }

PlanOptions options() {
  return {.world = kWorld, .seq = kSeq, .backend = "local", .evaluate = false, .save = false};
}

int64_t reserved(const Plan& plan, Tier tier = Tier::device) {
  return plan.fullest.peaks.reserved[static_cast<size_t>(tier)].peak;
}

Plan plan_of(const hub::ModelConfigFile& model, train::Config config, PlanOptions how = options()) {
  config.open.clear();
  return make_plan(model, config, how);
}

Hardware slow_links() {
  Hardware hardware{.name = "slow",
                    .source = "specification",
                    .device = DeviceKind::cpu,
                    .threads = 2,
                    .read_bytes_per_second = 1e10,
                    .write_bytes_per_second = 1e10,
                    .gemm = {.f32 = 1e11, .bf16 = 1e11},
                    .attention = {.f32 = 1e11, .bf16 = 1e11},
                    .other_flops = 1e10};
  hardware.same_host.all_gather = {.alpha_seconds = 1e-6, .bytes_per_second = 1e8};
  hardware.same_host.reduce_scatter = hardware.same_host.all_gather;
  return hardware;
}

// The modelled time of a step.
double seconds(const hub::ModelConfigFile& model, const train::Config& config) {
  PlanOptions timed = options();
  timed.ranks_per_host = kWorld;
  timed.hardware = slow_links();
  return plan_of(model, config, timed).fullest.time->step_seconds;
}

int64_t gathered(const Plan& plan) { return plan.fullest.step.at("all_gather").bytes_sent; }

class Ones final : public data::Dataset {
 public:
  int64_t num_samples() const override { return 64; }
  void read(int64_t index, data::Sample& sample) const override {
    for (int64_t i = 0; i < kSeq; ++i) {
      sample.tokens.push_back(static_cast<int32_t>((7 * index + i * i) % 61));
      sample.labels.push_back(static_cast<int32_t>((7 * index + (i + 1) * (i + 1)) % 61));
    }
  }
  std::string describe() const override { return "squares"; }
};

struct Ran {
  std::vector<std::vector<float>> weights;
  int64_t device = 0;  // reserved
  int64_t sent = 0;
};

Ran train(const hub::ModelConfigFile& model, const train::Config& config) {
  const Ones data;
  Ran ran;
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    const auto made = hub::make_model(model);
    zero::Engine engine(*made, config.engine, world, {.total_steps = 3});
    data::Loader loader(data, {.micro_batch = config.engine.batch.micro_batch,
                               .seq_len = kSeq,
                               .seed = 5,
                               .rank = world.rank(),
                               .world = world.size(),
                               .prefetch_batches = 0});
    train::Trainer trainer(engine, loader, nullptr, {}, nullptr, {.steps = 3});
    trainer.run();
    const int64_t device = world.context().allocator().report().reserved[0].peak;
    std::vector<std::vector<float>> weights;
    for (const nn::Parameter* parameter : made->parameters()) {
      weights.push_back(engine.parameter(parameter->name()).to_vector<float>());
    }
    if (!world.is_main()) return;
    ran = {
        .weights = std::move(weights), .device = device, .sent = world.communicator().bytes_sent()};
  });
  return ran;
}

// The limit of memory that such a share of all gathered weights needs beside the rest.
int64_t memory_for(const hub::ModelConfigFile& model, const train::Config& config, double share) {
  train::Config nothing = config;
  nothing.engine.zero.max_live_parameters = 0;
  nothing.engine.zero.resident_memory = 0;
  train::Config all = nothing;
  all.engine.zero.resident_memory = int64_t{1} << 40;
  const int64_t least = reserved(plan_of(model, nothing));
  const int64_t most = reserved(plan_of(model, all));
  return least + static_cast<int64_t>(share * static_cast<double>(most - least));
}

TEST(Fill, ResidentMemory_IsTheMostThatFits) {
  const hub::ModelConfigFile model = gpt2(512);
  const train::Config config = parse(stage_3(R"("stage3_max_live_parameters": 0)"),
                                     R"("zinc": {"resident_memory": "auto"}, )");
  ASSERT_THAT(config.open, ElementsAre("zinc.resident_memory"));
  int64_t before = -1;
  double longest = std::numeric_limits<double>::infinity();
  for (const double share : {0.0, 0.3, 0.6, 1.0}) {
    const int64_t limit = memory_for(model, config, share);
    const MemoryFill filled = fill_memory(model, config, options(), {.device = limit});
    EXPECT_TRUE(filled.config.open.empty());
    const int64_t found = filled.config.engine.zero.resident_memory;
    EXPECT_GT(found, before) << share;
    before = found;
    const Plan plan = plan_of(model, filled.config);
    EXPECT_LE(reserved(plan), limit);
    EXPECT_EQ(reserved(plan), filled.device_bytes);
    const double time = seconds(model, filled.config);
    EXPECT_LT(time, longest) << share;
    longest = time;
    // With one group more than the search kept, the plan does not fit.
    train::Config more = filled.config;
    int64_t smallest = int64_t{1} << 40;
    const auto made = hub::make_model(model);
    int64_t all = 0;
    for (const zero::ShardGroup& group : zero::make_shard_groups(*made, kWorld, 0)) {
      smallest = std::min(smallest, group.gathered_bytes());
      all += group.gathered_bytes();
    }
    more.engine.zero.resident_memory = found + smallest;
    if (found < all) {
      EXPECT_GT(reserved(plan_of(model, more)), limit) << share;
    }
  }
}

// With memory for half of the blocks, a step gathers at most 55 % of the bytes that it gathers
// without, has the same bits, and takes the planned memory.
TEST(Fill, MemoryForHalfOfTheWeights_SavesNearlyHalfOfTheGathers) {
  const hub::ModelConfigFile model = gpt2(512);
  const train::Config config = parse(stage_3(R"("stage3_max_live_parameters": 0)"),
                                     R"("zinc": {"resident_memory": "auto"}, )", 8);
  train::Config plain = config;
  plain.open.clear();
  int64_t all = 0, largest = 0;
  const auto made = hub::make_model(model);
  for (const zero::ShardGroup& group : zero::make_shard_groups(*made, kWorld, 0)) {
    all += group.gathered_bytes();
    largest = std::max(largest, group.gathered_bytes());
  }
  train::Config half = plain;
  half.engine.zero.resident_memory = all - 3 * largest;
  ASSERT_LT(half.engine.zero.resident_memory, 51 * all / 100);
  const int64_t limit = reserved(plan_of(model, half));
  const MemoryFill filled = fill_memory(model, config, options(), {.device = limit});
  const Plan before = plan_of(model, plain);
  const Plan after = plan_of(model, filled.config);
  EXPECT_LE(static_cast<double>(gathered(after)), 0.55 * static_cast<double>(gathered(before)));
  EXPECT_LT(seconds(model, filled.config), seconds(model, plain));

  const Ran without = train(model, plain);
  const Ran with = train(model, filled.config);
  EXPECT_EQ(with.weights, without.weights);
  EXPECT_EQ(with.device, reserved(after));
  EXPECT_LE(with.device, limit);
  EXPECT_LT(with.sent, without.sent);
}

TEST(Fill, MaxLiveParameters_IsTheMostThatFits) {
  const hub::ModelConfigFile model = gpt2(512);
  const train::Config config = parse(stage_3(R"("stage3_max_live_parameters": "auto")"), "", 1);
  ASSERT_THAT(config.open, ElementsAre(kMaxLiveKey));
  train::Config plain = config;
  plain.engine.zero.max_live_parameters = 0;
  const int64_t limit = memory_for(model, config, 0.5);
  const MemoryFill filled = fill_memory(model, config, options(), {.device = limit});
  const int64_t found = filled.config.engine.zero.max_live_parameters;
  const Plan plan = plan_of(model, filled.config);
  EXPECT_LE(reserved(plan), limit);
  EXPECT_LT(gathered(plan), gathered(plan_of(model, plain)));
  train::Config more = filled.config;
  more.engine.zero.max_live_parameters = 2 * found;
  EXPECT_GT(reserved(plan_of(model, more)), limit);
  EXPECT_LT(seconds(model, filled.config), seconds(model, plain));
  const Ran with = train(model, filled.config);
  EXPECT_EQ(with.device, reserved(plan));
  plain.open.clear();
  EXPECT_EQ(with.weights, train(model, plain).weights);
}

TEST(Fill, Ratio_IsTheLeastThatLeaves) {
  const hub::ModelConfigFile model = gpt2(512);
  const train::Config config =
      parse(R"("stage": 1, "offload_optimizer": {"device": "cpu", "ratio": "auto"})", "", 2);
  ASSERT_THAT(config.open, ElementsAre(kRatioKey));
  train::Config none = config, all = config;
  none.engine.zero.offload_optimizer.ratio = 0.0;
  const int64_t most = reserved(plan_of(model, none));
  const int64_t least = reserved(plan_of(model, all));
  ASSERT_LT(least, most);
  double before = 1.5;
  double longest = std::numeric_limits<double>::infinity();
  for (const double share : {0.0, 0.3, 0.7, 1.0}) {
    const auto limit = least + static_cast<int64_t>(share * static_cast<double>(most - least));
    const MemoryFill filled = fill_memory(model, config, options(), {.device = limit});
    const double found = filled.config.engine.zero.offload_optimizer.ratio;
    EXPECT_LT(found, before) << share;
    before = found;
    EXPECT_LE(reserved(plan_of(model, filled.config)), limit);
    const double time = seconds(model, filled.config);
    EXPECT_LT(time, longest) << share;
    longest = time;
    if (found == 0.0) continue;
    train::Config less = filled.config;
    less.engine.zero.offload_optimizer.ratio = found - 1.0 / 1024;
    EXPECT_GT(reserved(plan_of(model, less)), limit) << found;
  }
  EXPECT_EQ(before, 0.0);
  const int64_t limit = (least + most) / 2;
  const MemoryFill filled = fill_memory(model, config, options(), {.device = limit});
  const Ran with = train(model, filled.config);
  EXPECT_EQ(with.device, reserved(plan_of(model, filled.config)));
  none.open.clear();
  EXPECT_EQ(with.weights, train(model, none).weights);
}

TEST(Fill, NumberOfCheckpoints_RecomputesNoMoreBlocksThanMemoryAsks) {
  const hub::ModelConfigFile model = gpt2(512, 8);
  const train::Config config =
      parse(R"("stage": 1)", R"("activation_checkpointing": {"number_checkpoints": "auto"}, )", 2);
  ASSERT_THAT(config.open, ElementsAre(kCheckpointsKey));
  train::Config none = config, all = config;
  all.engine.recompute.num_checkpoints = 8;
  const int64_t most = reserved(plan_of(model, none));
  const int64_t least = reserved(plan_of(model, all));
  ASSERT_LT(least, most);
  int64_t before = 9;
  int distinct = 0;
  double longest = std::numeric_limits<double>::infinity();
  for (const double share : {0.0, 0.3, 0.6, 1.0}) {
    const auto limit = least + static_cast<int64_t>(share * static_cast<double>(most - least));
    const MemoryFill filled = fill_memory(model, config, options(), {.device = limit});
    const zero::RecomputeConfig& recompute = filled.config.engine.recompute;
    const int64_t blocks = recompute.num_checkpoints == 0 ? 0 : recompute.most_blocks.value_or(8);
    EXPECT_LE(blocks, before);
    const double time = seconds(model, filled.config);
    if (blocks < before) {
      ++distinct;
      EXPECT_LT(time, longest) << share;
    }
    longest = time;
    before = blocks;
    EXPECT_LE(reserved(plan_of(model, filled.config)), limit);
    if (blocks == 0) continue;
    train::Config fewer = filled.config;
    fewer.engine.recompute.most_blocks = blocks - 1;
    EXPECT_GT(reserved(plan_of(model, fewer)), limit) << blocks;
  }
  EXPECT_EQ(before, 0);
  EXPECT_GE(distinct, 3);
  const int64_t limit = (least + most) / 2;
  const train::Config filled = fill_memory(model, config, options(), {.device = limit}).config;
  const Ran with = train(model, filled);
  EXPECT_EQ(with.device, reserved(plan_of(model, filled)));
  none.open.clear();
  EXPECT_EQ(with.weights, train(model, none).weights);
}

// If times are modelled, the order of filling is the one with the shortest step.
TEST(Fill, SeveralKeys_AreFilledInTheOrderThatIsFastest) {
  const hub::ModelConfigFile model = gpt2(512);
  const train::Config config =
      parse(stage_3(R"("stage3_max_live_parameters": 0,
                       "offload_optimizer": {"device": "cpu", "ratio": "auto"})"),
            R"("zinc": {"resident_memory": "auto", "offload_step": "host"}, )");
  ASSERT_EQ(config.open.size(), 2u);
  const int64_t least = reserved(plan_of(model, config));
  const int64_t limit = least + (int64_t{40} << 20);
  PlanOptions timed = options();
  timed.ranks_per_host = 2;
  const train::Config plain = fill_memory(model, config, timed, {.device = limit}).config;
  timed.hardware = slow_links();
  const MemoryFill filled = fill_memory(model, config, timed, {.device = limit});
  const auto seconds = [&](const train::Config& of) {
    return plan_of(model, of, timed).fullest.time->step_seconds;
  };
  EXPECT_LT(seconds(filled.config), seconds(plain));
  EXPECT_LT(seconds(filled.config), seconds(config));
  EXPECT_LE(reserved(plan_of(model, filled.config)), limit);
  EXPECT_THAT(filled.line, HasSubstr("\"auto\" fills "));
  EXPECT_THAT(filled.line, HasSubstr("zinc.resident_memory "));
  // Links are slow: memory goes to weights, not to states.
  EXPECT_GT(filled.config.engine.zero.resident_memory, plain.engine.zero.resident_memory);
}

TEST(Fill, OnePool_CountsHostMemoryToo) {
  const hub::ModelConfigFile model = gpt2(512);
  const train::Config config =
      parse(R"("stage": 1, "offload_optimizer": {"device": "cpu", "ratio": "auto"})", "", 2);
  train::Config half = config;
  half.engine.zero.offload_optimizer.ratio = 1.0;
  const Plan plan = plan_of(model, half);
  const int64_t device = reserved(plan);
  const int64_t both = device + reserved(plan, Tier::pinned_host);
  EXPECT_NO_THROW(fill_memory(model, config, options(), {.device = device}));
  EXPECT_THROW(fill_memory(model, config, options(), {.device = device, .one_pool = true}),
               OutOfMemory);
  const MemoryFill filled =
      fill_memory(model, config, options(), {.device = both, .one_pool = true});
  const Plan found = plan_of(model, filled.config);
  EXPECT_LE(reserved(found) + reserved(found, Tier::pinned_host), both);
}

TEST(Fill, WhatOtherRanksTake_IsWhatOneFound) {
  train::Config config = parse(stage_3(R"("stage3_max_live_parameters": "auto",
                                "offload_optimizer": {"device": "cpu", "ratio": "auto"})"),
                               R"("zinc": {"resident_memory": "auto"}, )");
  train::Config found = config;
  found.engine.zero.max_live_parameters = 123'456'789'012'345;
  found.engine.zero.resident_memory = 987'654'321'012'345;
  found.engine.zero.offload_optimizer.ratio = 0.3;
  found.engine.recompute.num_checkpoints = 6;
  found.engine.recompute.most_blocks = 0;
  found.open.clear();
  take_filled_values(filled_values(found), config);
  EXPECT_EQ(train::resolved_json(config, kWorld), train::resolved_json(found, kWorld));
  EXPECT_TRUE(config.open.empty());
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FillErrors, NothingFits_SaysWhatIsNeeded) {
  const train::Config config = parse(stage_3(R"("stage3_max_live_parameters": "auto")"));
  EXPECT_THROW(fill_memory(gpt2(), config, options(), {.device = 4096}), OutOfMemory);
  EXPECT_THAT(error_of([&] { fill_memory(gpt2(), config, options(), {.device = 4096}); }),
              HasSubstr("cannot make the run fit: a rank reserves "));
}

TEST(FillErrors, OpenKeysDoNotTrain) {
  const train::Config config = parse(stage_3(R"("stage3_max_live_parameters": "auto")"));
  EXPECT_THAT(error_of([&] { make_plan(gpt2(), config, options()); }),
              HasSubstr("stage3_max_live_parameters is found by plans"));
  EXPECT_THAT(train::resolved_json(config, kWorld),
              HasSubstr(R"("stage3_max_live_parameters": "auto")"));
}

TEST(FillErrors, KeysThatContradictEachOther_AreNamed) {
  const train::Config config = parse(R"("stage": 1)", R"("zinc": {"recompute_blocks": 2},
      "activation_checkpointing": {"number_checkpoints": "auto"}, )");
  EXPECT_THAT(error_of([&] { fill_memory(gpt2(), config, options(), {.device = 1 << 30}); }),
              HasSubstr("zinc.recompute_blocks, which is given"));
}

TEST(Fill, KeysWithoutAnEffectHere_BecomeTheirDefaults) {
  const train::Config config = parse(R"("stage": 1, "stage3_max_live_parameters": "auto",
      "offload_optimizer": {"device": "none", "ratio": "auto"})");
  const MemoryFill filled = fill_memory(gpt2(), config, options(), {.device = 1});
  EXPECT_TRUE(filled.config.open.empty());
  EXPECT_EQ(filled.num_plans, 0);
  EXPECT_EQ(filled.config.engine.zero.max_live_parameters,
            train::Config{}.engine.zero.max_live_parameters);
}

}  // namespace fill_test
}  // namespace zinc::plan
