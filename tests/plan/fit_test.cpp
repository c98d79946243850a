// The search for a configuration that fits: against every candidate of a small space, against runs,
// and its errors.
#include "plan/fit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "files/json/writer.h"
#include "hub/model.h"
#include "train/trainer.h"

namespace zinc::plan {
namespace fit_test {

using testing::HasSubstr;

constexpr int64_t kSeq = 24;

// Plans take no memory: so large that its parts show beside segments of 2 MiB.
hub::ModelConfigFile gpt2(int64_t hidden) {
  nn::Gpt2Config config;
  config.vocab_size = 61;
  config.max_positions = 32;
  config.hidden_size = hidden;
  config.num_layers = 4;
  config.num_heads = 4;
  return {.config = config};
}

// A GPU for whose kernels a small model is work, and a link that counts.
Hardware slow_gpu() {
  Hardware hardware{.name = "slow",
                    .source = "specification",
                    .device = DeviceKind::cuda,
                    .read_bytes_per_second = 1e10,
                    .write_bytes_per_second = 1e10,
                    .gemm = {.f32 = 1e11, .bf16 = 1e11},
                    .attention = {.f32 = 1e11, .bf16 = 1e11},
                    .other_flops = 1e10};
  hardware.same_host.all_gather = {.alpha_seconds = 1e-6, .bytes_per_second = 3e9};
  hardware.same_host.reduce_scatter = hardware.same_host.all_gather;
  hardware.disk = Disk{.read_bytes_per_second = 1e9, .write_bytes_per_second = 1e9};
  hardware.host = HostRates{.threads = 2,
                            .to_device_bytes_per_second = 2e9,
                            .to_host_bytes_per_second = 2e9,
                            .update_bytes_per_second = 3e9};
  return hardware;
}

FitRequest request_for(int64_t device_bytes) {
  FitRequest request{.model = gpt2(512)};
  request.plan = {.world = 2,
                  .seq = kSeq,
                  .device = Device{.kind = DeviceKind::cuda},
                  .backend = "mpi",
                  .ranks_per_host = 2,
                  .hardware = slow_gpu()};
  request.limits = {.device = device_bytes, .host = int64_t{1} << 30};
  request.space.global_batch = 16;
  request.space.flags.dtype = DType::bf16;
  return request;
}

struct Planned {
  std::string words;
  int64_t device = 0, host = 0;
  double seconds = 0.0;
};

// Every candidate, planned on its own with all its micro-batches; where states are in host memory,
// once for each who may update them.
std::vector<Planned> plan_everything(const FitRequest& request) {
  FitSpaceOptions options = request.space;
  options.world = request.plan.world;
  options.host = request.limits.host.has_value();
  options.ranks_per_host = request.plan.ranks_per_host;
  const FitSpace space(request.model, options);
  std::vector<Planned> all;
  const std::function<void(FitCandidate, int)> visit = [&](FitCandidate c, int s) {
    if (s < kNumSavings) {
      for (int level = 0; level < space.num_levels(static_cast<Saving>(s)); ++level) {
        c.level[static_cast<size_t>(s)] = level;
        visit(c, s + 1);
      }
      return;
    }
    if (!space.is_valid(c)) return;
    train::Config config = space.config_of(c);
    for (const auto step : {zero::OffloadStep::host, zero::OffloadStep::device}) {
      config.engine.offload_step = step;
      if (step == zero::OffloadStep::device && c.at(Saving::states) == 0) continue;
      const Plan plan = make_plan(request.model, config, request.plan);
      all.push_back({.words = space.words(c),
                     .device = plan.fullest.peaks.reserved[0].peak,
                     .host = plan.fullest.peaks.reserved[1].peak,
                     .seconds = plan.fullest.time->step_seconds});
    }
  };
  for (const FitCandidate& root : space.roots()) {
    visit(root, 0);
    for (const FitCandidate& other : space.in_other_orders(root)) visit(other, 0);
  }
  return all;
}

// Residency and buffers are fixed, so that all others are a few hundred.
constexpr auto kFewKeys = R"({
  "zero_optimization": {"stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0,
    "reduce_bucket_size": 1000000, "allgather_bucket_size": 1000000, "overlap_comm": true,
    "sub_group_size": 1000000}})";

TEST(Fit, IsTheBestOfAllCandidatesAtEveryLimit) {
  FitRequest request = request_for(1);
  request.space.config = kFewKeys;
  request.space.global_batch = 8;
  const std::vector<Planned> all = plan_everything(request);
  std::vector<int64_t> limits;
  for (const Planned& one : all) limits.push_back(one.device);
  std::ranges::sort(limits);
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  ASSERT_GE(limits.size(), 6u);
  std::vector<int64_t> some{1 << 16, limits.front() - 1};
  for (size_t i = 0; i < 12; ++i) some.push_back(limits[i * (limits.size() - 1) / 11]);
  limits = some;
  for (const int64_t limit : limits) {
    request.limits.device = limit;
    SCOPED_TRACE(limit);
    const Planned* best = nullptr;
    for (const Planned& one : all) {
      if (one.device > limit || one.host > *request.limits.host) continue;
      if (best == nullptr || one.seconds < best->seconds) best = &one;
    }
    const FitResult result = fit(request);
    ASSERT_EQ(result.best.empty(), best == nullptr);
    if (best == nullptr) {
      EXPECT_EQ(result.nothing->reserved[0], limits[2]);  // the smallest that any takes
      continue;
    }
    EXPECT_TRUE(result.is_complete);
    EXPECT_LE(result.best.front().reserved[0], limit);
    // Memory that is filled between two levels may be faster than both. 1e-9: sums in another
    // order.
    EXPECT_LE(result.best.front().time->step_seconds, best->seconds * (1 + 1e-9))
        << result.best.front().words << "\ninstead of " << best->words;
  }
}

// Four ranks on two hosts, and a network that is slower than the way within one.
FitRequest mesh_request() {
  FitRequest request = request_for(int64_t{1} << 30);
  request.plan.world = 4;
  request.plan.hardware->between_hosts = {{.alpha_seconds = 1e-5, .bytes_per_second = 5e8},
                                          {.alpha_seconds = 1e-5, .bytes_per_second = 5e8}};
  request.limits.host.reset();
  request.space.meshes = true;
  request.space.global_batch = 8;
  request.space.config = R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 1000000,
      "allgather_bucket_size": 1000000, "overlap_comm": true, "sub_group_size": 1000000}})";
  return request;
}

// True if a saving of moments is of use: without it the same candidate does not fit.
bool needs_narrow_moments(const Planned& narrow, const std::vector<Planned>& all, int64_t limit) {
  const std::string suffix = ", moments in bf16";
  if (!narrow.words.ends_with(suffix)) return true;
  const std::string words = narrow.words.substr(0, narrow.words.size() - suffix.size());
  return std::ranges::none_of(
      all, [&](const Planned& one) { return one.words == words && one.device <= limit; });
}

// At eight limits, from the one that the smallest candidate takes; gives the answers.
std::vector<FittedConfig> expect_best_of_all(FitRequest request) {
  request.num_answers = 1;  // the search ends as early as it may
  const std::vector<Planned> all = plan_everything(request);
  std::vector<int64_t> limits;
  for (const Planned& one : all) limits.push_back(one.device);
  std::ranges::sort(limits);
  std::vector<FittedConfig> answers;
  for (size_t i = 0; i < 8; ++i) {
    const int64_t limit = limits[i * (limits.size() - 1) / 7];
    request.limits.device = limit;
    SCOPED_TRACE(limit);
    const Planned* best = nullptr;
    for (const Planned& one : all) {
      if (one.device > limit || !needs_narrow_moments(one, all, limit)) continue;
      if (best == nullptr || one.seconds < best->seconds) best = &one;
    }
    const FitResult result = fit(request);
    if (result.best.empty()) {
      ADD_FAILURE() << "nothing was found, but " << best->words << " fits";
      continue;
    }
    EXPECT_TRUE(result.is_complete);
    const FittedConfig& first = result.best.front();
    EXPECT_LE(first.reserved[0], limit);
    // 1e-3: of steps with more micro-batches than are planned.
    EXPECT_LE(first.time->step_seconds, best->seconds * (1 + 1e-3))
        << first.words << "\ninstead of " << best->words;
    answers.push_back(first);
  }
  return answers;
}

// Moments in bf16 change results: they are taken where the file allows it, and nowhere else.
TEST(Fit, MomentsThatAreAuto_MayBeInBf16) {
  FitRequest request = request_for(1);
  request.limits.host.reset();
  request.space.global_batch = 8;
  const auto ask = [&](const std::string& zinc, const std::string& more) {
    request.space.config = R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 1000000,
        "allgather_bucket_size": 1000000, "overlap_comm": true, "sub_group_size": 1000000},
        "activation_checkpointing": {"number_checkpoints": 1}, "zinc": {)" +
                           zinc + "}" + more + "}";
  };
  const std::string automatic = R"("moments": "auto")";
  ask(automatic, "");
  std::set<int> levels;
  for (const FittedConfig& answer : expect_best_of_all(request)) {
    levels.insert(answer.candidate.at(Saving::moments));
    const files::json::Value& zinc = answer.file.at("zinc");
    EXPECT_EQ(zinc.at("moments").as_string() == "bf16", answer.candidate.at(Saving::moments) == 1);
  }
  EXPECT_TRUE(levels.contains(1));
  const auto num_levels = [&] {
    FitSpaceOptions options = request.space;
    options.world = request.plan.world;
    return FitSpace(request.model, options).num_levels(Saving::moments);
  };
  EXPECT_EQ(num_levels(), 2);
  ask("", "");
  EXPECT_EQ(num_levels(), 1);
  ask(R"("moments": "bf16")", "");
  EXPECT_EQ(num_levels(), 1);
  ask(automatic, R"(, "optimizer": {"type": "SGD", "params": {"lr": 0.1}})");
  EXPECT_EQ(num_levels(), 1);  // a rule without such moments
}

TEST(FitMesh, IsTheBestOfAllMeshesAtEveryLimit) {
  FitRequest request = mesh_request();
  request.space.config = R"({"zinc": {"pipeline_schedule": "1f1b", "pipeline_interleave": 1},
      "zero_optimization": {"stage": 1, "reduce_bucket_size": 1000000,
      "allgather_bucket_size": 1000000, "overlap_comm": true, "sub_group_size": 1000000}})";
  std::set<std::tuple<int, int, int>> meshes;
  for (const FittedConfig& answer : expect_best_of_all(request)) {
    const FitCandidate& chosen = answer.candidate;
    meshes.emplace(chosen.tensor, chosen.sequence, chosen.pipe);
  }
  EXPECT_GE(meshes.size(), 2u);  // else nothing was searched
}

TEST(FitMesh, IsTheBestOfAllOrdersOfAPipelineAtEveryLimit) {
  FitRequest request = mesh_request();
  request.model.config.as<nn::Gpt2Config>().num_layers = 4;
  request.space.global_batch = 64;
  request.space.config = R"({"zinc": {"mesh": {"tensor": 1, "sequence": 1, "pipe": 2}},
      "train_micro_batch_size_per_gpu": 8,
      "zero_optimization": {"stage": 1, "reduce_bucket_size": 1000000,
      "allgather_bucket_size": 1000000, "overlap_comm": true, "sub_group_size": 1000000}})";
  std::set<FitOrder> orders;
  for (const FittedConfig& answer : expect_best_of_all(request)) {
    orders.insert(answer.candidate.order);
    const parallel::PipelineShape shape = answer.candidate.pipeline();
    const train::Config config = train::parse_config(files::json::write(answer.file), "written", 4);
    EXPECT_EQ(config.engine.pipeline.schedule, shape.schedule) << answer.words;
    EXPECT_EQ(config.engine.pipeline.interleave, shape.parts) << answer.words;
    // The reason for the order, unless it is the simplest.
    const bool is_simplest = answer.candidate.order == FitOrder{};
    EXPECT_THAT(answer.why,
                testing::Contains(HasSubstr("one part a rank, 1f1b: ")).Times(is_simplest ? 0 : 1));
  }
  EXPECT_GE(orders.size(), 2u);  // the fastest order keeps most activations
}

// The written file has the mesh, and its plan has the promised bytes and time.
class FitPipeline : public testing::TestWithParam<const char*> {};

TEST_P(FitPipeline, WrittenFileHasTheMeshAndItsPlan) {
  FitRequest request = mesh_request();
  request.space.global_batch = 96;
  request.model.config.as<nn::Gpt2Config>().num_layers = 4;
  request.space.config = str(R"({"zinc": {"mesh": {"pipe": 2})", GetParam(), "}}");
  const FitResult result = fit(request);
  ASSERT_FALSE(result.best.empty());
  for (const FittedConfig& answer : result.best) {
    SCOPED_TRACE(answer.words);
    EXPECT_THAT(answer.words, HasSubstr("pipe 2"));
    const train::Config config = train::parse_config(files::json::write(answer.file), "written", 4);
    EXPECT_EQ(config.mesh, answer.candidate.mesh());
    EXPECT_EQ(config.engine.batch.micro_batch * config.engine.batch.accumulation *
                  (4 / config.mesh.ranks_per_batch()),
              96);
    const Plan whole = make_plan(request.model, config, request.plan);
    EXPECT_EQ(answer.reserved[0], whole.fullest.peaks.reserved[0].peak);
    EXPECT_NEAR(answer.time->step_seconds, whole.fullest.time->step_seconds,
                1e-3 * whole.fullest.time->step_seconds);
    const double flops = whole.flops_per_step;
    EXPECT_NEAR(answer.mfu, flops / 1e11 / answer.time->step_seconds, 1e-6 * answer.mfu);
    double slowest = 0.0;
    for (const RankPlan& rank : whole.pipe) {
      slowest = std::max(slowest, rank.time->step_seconds - rank.time->pipeline_wait_seconds);
    }
    EXPECT_NEAR(whole.fullest.time->step_seconds,
                slowest * (1.0 + parallel::bubble(config.pipeline_shape())), 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, FitPipeline,
                         testing::Values("", R"(, "pipeline_interleave": 2)",
                                         R"(, "pipeline_schedule": "zb-h1")",
                                         R"(, "pipeline_schedule": "gpipe")"),
                         [](const auto& info) { return testing::PrintToString(info.index); });

// A model with three heads has no mesh of two tensor ranks, and nobody is told.
TEST(FitMesh, WhatTheModelCannotBeSharedByIsNoCandidate) {
  FitRequest request = mesh_request();
  request.model.config.as<nn::Gpt2Config>().num_heads = 3;
  request.model.config.as<nn::Gpt2Config>().hidden_size = 192;
  const FitResult result = fit(request);
  ASSERT_FALSE(result.best.empty());
  for (const FittedConfig& answer : result.best) {
    EXPECT_EQ(answer.candidate.tensor, 1);
    EXPECT_EQ(answer.candidate.sequence, 1);
  }
  request.space.config = R"({"zinc": {"mesh": {"tensor": 2}}})";
  EXPECT_THROW(fit(request), ConfigError);
}

TEST(FitMesh, TensorGroupsStayOnAHost) {
  FitRequest request = mesh_request();
  FitSpaceOptions options = request.space;
  options.world = 4;
  options.ranks_per_host = 2;
  const FitSpace space(request.model, options);
  ASSERT_FALSE(space.roots().empty());
  for (const FitCandidate& root : space.roots()) {
    EXPECT_LE(root.tensor, 2);
    EXPECT_EQ(4 % root.mesh().ranks_per_batch(), 0);
  }
}

// The cheapest way to save activations comes before blocks are computed again.
TEST(Fit, RecomputesNormsAndActivationsBeforeBlocks) {
  FitRequest request = request_for(int64_t{1} << 30);
  request.space.config = R"({"train_micro_batch_size_per_gpu": 8,
                             "zero_optimization": {"stage": 2}})";
  request.limits.host.reset();
  const FitResult all = fit(request);
  ASSERT_FALSE(all.best.empty());
  EXPECT_EQ(all.best.front().candidate.at(Saving::recompute), 0);
  request.limits.device = all.best.front().reserved[0] - (int64_t{2} << 20);
  request.space.config = R"({"train_micro_batch_size_per_gpu": 8,
      "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000, "allgather_bucket_size": 1000,
                            "overlap_comm": false}})";
  const FitResult less = fit(request);
  ASSERT_FALSE(less.best.empty());
  const train::Config config =
      train::parse_config(files::json::write(less.best.front().file), "written", 2);
  EXPECT_TRUE(config.engine.recompute.selective) << less.best.front().words;
  EXPECT_FALSE(config.engine.recompute.is_on()) << less.best.front().words;
}

// The search's figures for a long step equal those of a plan with all micro-batches.
TEST(Fit, StepOfManyMicroBatchesIsPlannedByFour) {
  for (const int64_t mib : {220, 1024}) {
    FitRequest request = request_for(mib << 20);
    request.space.global_batch = 48;
    request.space.config = R"({"train_micro_batch_size_per_gpu": 2})";
    const FitResult result = fit(request);
    SCOPED_TRACE(mib);
    ASSERT_FALSE(result.best.empty());
    for (const FittedConfig& answer : result.best) {
      SCOPED_TRACE(answer.words);
      const train::Config config =
          train::parse_config(files::json::write(answer.file), "written", 2);
      ASSERT_EQ(config.engine.batch.accumulation, 12);
      const Plan whole = make_plan(request.model, config, request.plan);
      for (int t = 0; t < kNumTiers; ++t) {
        const auto tier = static_cast<size_t>(t);
        EXPECT_EQ(answer.reserved[tier], whole.fullest.peaks.reserved[tier].peak);
      }
      EXPECT_NEAR(answer.time->step_seconds, whole.fullest.time->step_seconds,
                  1e-3 * whole.fullest.time->step_seconds);
    }
  }
}

constexpr const char* kStepsOfFour[] = {
    R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4})",
    R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0,
          "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0},
        "activation_checkpointing": {"number_checkpoints": 4},
        "zinc": {"activation_offload": {"device": "cpu"}}})",
    R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}},
        "zinc": {"offload_step": "host"}})",
    R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
          "offload_param": {"device": "cpu"}},
        "zinc": {"offload_step": "device"}})",
    R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0,
          "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp"},
          "offload_param": {"device": "nvme", "nvme_path": "/tmp", "max_in_cpu": 0}},
        "zinc": {"gradient_offload": "nvme"}})"};

// A plan's figures for its step with one micro-batch less equal those of the plan of that step.
TEST(Plan, KnowsItsStepWithOneMicroBatchLess) {
  const FitRequest request = request_for(1);
  for (const char* text : kStepsOfFour) {
    SCOPED_TRACE(text);
    train::Config config = train::parse_config(text, "four", 2, {.dtype = DType::bf16});
    const Plan four = make_plan(request.model, config, request.plan);
    ASSERT_TRUE(four.fullest.shorter);
    config.engine.batch.accumulation = 3;
    const Plan three = make_plan(request.model, config, request.plan);
    EXPECT_FALSE(three.fullest.shorter);
    const StepFigures& shorter = *four.fullest.shorter;
    int64_t sent = 0;
    for (const auto& [name, traffic] : three.fullest.step) sent += traffic.bytes_sent;
    EXPECT_TRUE(shorter.swap == three.fullest.swap);
    // The totals of the losses have a few bytes for each micro-batch.
    const auto near = [](int64_t a, int64_t b) { EXPECT_LE(std::abs(a - b), 64) << a; };
    near(shorter.bytes_sent, sent);
    near(shorter.copies.to_host, three.fullest.copies.to_host);
    near(shorter.copies.to_device, three.fullest.copies.to_device);
    const StepTime& now = *shorter.time;
    const StepTime& then = *three.fullest.time;
    const double slack = 1e-5 * then.step_seconds;
    EXPECT_NEAR(now.step_seconds, then.step_seconds, slack);
    EXPECT_NEAR(now.compute_seconds, then.compute_seconds, slack);
    EXPECT_NEAR(now.communication_seconds, then.communication_seconds, slack);
    EXPECT_NEAR(now.offload.to_device, then.offload.to_device, slack);
    EXPECT_NEAR(now.offload.to_host, then.offload.to_host, slack);
    EXPECT_NEAR(now.offload.on_host, then.offload.on_host, slack);
    EXPECT_NEAR(now.exposed_offload_seconds, then.exposed_offload_seconds, slack);
    ASSERT_EQ(now.swap_seconds.has_value(), then.swap_seconds.has_value());
    if (then.swap_seconds) {
      EXPECT_NEAR(*now.swap_seconds, *then.swap_seconds, slack);
    }
    EXPECT_LT(now.step_seconds, four.fullest.time->step_seconds);
  }
}

// A plan that has shown enough ends with the step that is looked at, of which it says the same.
TEST(Plan, EndsWhereItHasShownEnough) {
  const FitRequest request = request_for(1);
  const train::Config config =
      train::parse_config(kStepsOfFour[0], "four", 2, {.dtype = DType::bf16});
  PlanOptions options = request.plan;
  const Plan whole = make_plan(request.model, config, options);
  ASSERT_TRUE(whole.fullest.is_whole);
  int64_t limit = whole.fullest.peaks.at(Tier::device).peak;
  options.is_enough = [&](const MemoryReport& taken) {
    return taken.at(Tier::device).peak > limit;
  };
  EXPECT_TRUE(make_plan(request.model, config, options).fullest.is_whole);
  limit /= 2;
  const Plan part = make_plan(request.model, config, options);
  EXPECT_FALSE(part.fullest.is_whole);
  EXPECT_GT(part.fullest.peaks.at(Tier::device).peak, limit);
  EXPECT_LE(part.fullest.peaks.at(Tier::device).peak, whole.fullest.peaks.at(Tier::device).peak);
  EXPECT_EQ(part.fullest.time->step_seconds, whole.fullest.time->step_seconds);
  EXPECT_EQ(part.fullest.kernel_flops, whole.fullest.kernel_flops);
  EXPECT_EQ(part.fullest.standing.weights, whole.fullest.standing.weights);
  EXPECT_EQ(part.fullest.standing.states, whole.fullest.standing.states);
  EXPECT_EQ(part.fullest.standing.activations, whole.fullest.standing.activations);
}

TEST(Fit, ThreadsDoNotChangeIt) {
  FitRequest request = request_for(int64_t{200} << 20);
  const FitResult one = fit(request);
  request.threads = 3;
  const FitResult three = fit(request);
  ASSERT_EQ(one.best.size(), three.best.size());
  EXPECT_EQ(one.num_planned, three.num_planned);
  for (size_t i = 0; i < one.best.size(); ++i) {
    EXPECT_EQ(one.best[i].words, three.best[i].words);
    EXPECT_TRUE(one.best[i].file == three.best[i].file);
  }
}

class Zeros final : public data::Dataset {
 public:
  int64_t num_samples() const override { return 64; }
  void read(int64_t, data::Sample& sample) const override {
    sample.tokens.assign(kSeq, 1);
    sample.labels.assign(kSeq, 2);
  }
  std::string describe() const override { return "ones"; }
};

// Returns the memory reports by rank.
std::vector<MemoryReport> train_two_ranks(const hub::ModelConfigFile& file,
                                          const train::Config& config) {
  const Zeros data;
  std::vector<MemoryReport> ranks(2);
  comm::run_local_ranks(2, {.seed = config.seed, .num_threads = 1}, [&](comm::World& world) {
    const auto model = hub::make_model(file);
    zero::Engine engine(*model, config.engine, world, {.total_steps = 3});
    data::Loader loader(data, {.micro_batch = config.engine.batch.micro_batch,
                               .seq_len = kSeq,
                               .seed = config.seed,
                               .rank = world.rank(),
                               .world = world.size(),
                               .prefetch_batches = 0});
    train::Trainer trainer(engine, loader, nullptr, {}, nullptr, {.steps = 3});
    trainer.run();
    ranks[static_cast<size_t>(world.rank())] = world.context().allocator().report();
  });
  return ranks;
}

// The file that is written trains, and takes what was promised.
TEST(Fit, WrittenFileTrainsWithinItsLimit) {
  for (const int64_t mib : {4, 6, 40}) {
    FitRequest request = request_for(mib << 20);
    request.model = gpt2(64);
    request.plan.device = kCpu;
    request.plan.backend = "local";
    request.plan.hardware.reset();
    request.plan.save = false;
    request.plan.evaluate = false;
    const FitResult result = fit(request);
    SCOPED_TRACE(mib);
    ASSERT_FALSE(result.best.empty());
    const FittedConfig& answer = result.best.front();
    SCOPED_TRACE(answer.words);
    EXPECT_FALSE(result.is_timed);
    EXPECT_THAT(describe(result, request), HasSubstr("fits by memory alone"));
    const train::Config config = train::parse_config(files::json::write(answer.file), "written", 2);
    EXPECT_EQ(config.engine.batch.global_batch(2), 16);
    const std::vector<MemoryReport> ranks = train_two_ranks(request.model, config);
    for (const MemoryReport& rank : ranks) {
      EXPECT_LE(rank.reserved[0].peak, mib << 20);
      for (const Tier tier : {Tier::device, Tier::pinned_host}) {
        EXPECT_EQ(rank.reserved[static_cast<size_t>(tier)].peak,
                  answer.reserved[static_cast<size_t>(tier)])
            << name_of(tier);
      }
    }
  }
}

TEST(Fit, KeysOfTheFileStay) {
  FitRequest request = request_for(int64_t{1} << 30);
  request.space.config = R"({
    "train_batch_size": 16,
    "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
    "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu", "ratio": 0.3}},
    "activation_checkpointing": {"number_checkpoints": 2}})";
  request.space.global_batch = 0;
  const FitResult result = fit(request);
  ASSERT_FALSE(result.best.empty());
  for (const FittedConfig& answer : result.best) {
    const train::Config config = train::parse_config(files::json::write(answer.file), "written", 2);
    EXPECT_EQ(config.engine.zero.stage, 1);
    EXPECT_EQ(config.engine.zero.offload_optimizer.device, zero::OffloadDevice::cpu);
    EXPECT_DOUBLE_EQ(config.engine.zero.offload_optimizer.ratio, 0.3);
    EXPECT_EQ(config.engine.recompute.num_checkpoints, 2);
    EXPECT_DOUBLE_EQ(config.engine.optimizer.hyper.lr, 0.5);
    EXPECT_EQ(config.engine.batch.global_batch(2), 16);
    EXPECT_NE(config.engine.offload_step, zero::OffloadStep::automatic);
  }
}

TEST(Fit, NothingFits_SaysWhatIsBeyondAndByHowMuch) {
  FitRequest request = request_for(int64_t{1} << 16);
  const FitResult result = fit(request);
  EXPECT_TRUE(result.best.empty());
  ASSERT_TRUE(result.nothing);
  ASSERT_EQ(result.nothing->beyond.size(), 1u);
  EXPECT_EQ(result.nothing->beyond[0], Tier::device);
  EXPECT_THAT(
      describe(result, request),
      testing::AllOf(HasSubstr("nothing fits: what comes nearest is beyond device of "),
                     HasSubstr(fmt::format("have to be {} bytes", result.nothing->reserved[0])),
                     HasSubstr("at the device's peak: ")));
  // The limit that it names would be enough.
  request.limits.device = result.nothing->reserved[0];
  EXPECT_FALSE(fit(request).best.empty());
}

TEST(Fit, LimitOfPlansSaysWhatIsLeft) {
  FitRequest request = request_for(int64_t{200} << 20);
  request.max_plans = 6;
  const FitResult result = fit(request);
  EXPECT_FALSE(result.is_complete);
  EXPECT_THAT(describe(result, request), HasSubstr("ended at its limit of plans"));
}

TEST(Fit, ExplainsAKeyByItsOtherValues) {
  FitRequest request = request_for(int64_t{1} << 30);
  const FitResult result = fit(request);
  ASSERT_FALSE(result.best.empty());
  const KeyCosts costs = explain_key(request, result.best.front(), "stage");
  EXPECT_EQ(costs.path, "zero_optimization.stage");
  ASSERT_EQ(costs.rows.size(), 4u);
  int own = 0;
  for (const KeyCost& row : costs.rows) {
    if (!row.problem.empty()) continue;
    train::Config config = train::parse_config(
        files::json::write(with_key(result.best.front().file, costs.path, std::stoi(row.value))),
        "changed", 2);
    const Plan plan = make_plan(request.model, config, request.plan);
    EXPECT_EQ(row.reserved[0], plan.fullest.peaks.reserved[0].peak) << row.value;
    own += row.is_own ? 1 : 0;
  }
  EXPECT_EQ(own, 1);
}

// Stage 0 has no states to offload, stages below 3 no weights: the figures are those without.
TEST(Fit, ExplainsAValueThatRulesSavingsOut_ByFiguresWithoutThem) {
  FitRequest request;
  FitResult result;
  // The least that anything fits into.
  for (int64_t mib = 40; mib < 400 && result.best.empty(); mib += 8) {
    request = request_for(mib << 20);
    request.space.config = R"({"zero_optimization": {"sub_group_size": 1000000}})";
    result = fit(request);
  }
  ASSERT_FALSE(result.best.empty());
  const FittedConfig& best = result.best.front();
  ASSERT_GT(best.candidate.at(Saving::states), 0) << best.words;
  const KeyCosts costs = explain_key(request, best, "stage");
  ASSERT_EQ(costs.rows.size(), 4u);
  for (const KeyCost& row : costs.rows) {
    EXPECT_EQ(row.problem, "") << row.value;
    EXPECT_GT(row.reserved[0], 0) << row.value;
  }
  EXPECT_THAT(costs.rows.front().without, HasSubstr("states in host memory"));
  EXPECT_FALSE(costs.rows.front().fits);
  EXPECT_THAT(describe(costs), HasSubstr("  does not fit  without "));
  // A key of the user's own file stays: then there is a reason.
  request.space.config = R"({"zero_optimization": {"sub_group_size": 1000000, "stage": 1,
                             "offload_optimizer": {"device": "cpu"}}})";
  request.limits.device = int64_t{1} << 30;
  const KeyCosts fixed = explain_key(request, fit(request).best.front(), "stage");
  EXPECT_THAT(fixed.rows.front().problem, HasSubstr("offload_optimizer needs ZeRO stage"));
}

// Bytes on NVMe of an answer are those that its plan and its run take.
TEST(Fit, BytesOnNvmeAreThoseOfARun) {
  FitRequest request = request_for(int64_t{1} << 30);
  request.model = gpt2(64);
  request.plan.device = kCpu;
  request.plan.backend = "local";
  request.plan.hardware.reset();
  request.plan.save = false;
  request.plan.evaluate = false;
  request.limits.nvme = int64_t{1} << 30;
  request.space.nvme_path = testing::TempDir();
  request.space.config = R"({"zero_optimization": {"stage": 3,
      "stage3_param_persistence_threshold": 0, "offload_optimizer": {"device": "nvme"},
      "offload_param": {"device": "nvme", "max_in_cpu": 0}},
      "zinc": {"gradient_offload": "nvme"}})";
  const FitResult result = fit(request);
  ASSERT_FALSE(result.best.empty());
  const FittedConfig& answer = result.best.front();
  const auto nvme = static_cast<size_t>(Tier::nvme);
  const train::Config config = train::parse_config(files::json::write(answer.file), "written", 2);
  const Plan plan = make_plan(request.model, config, request.plan);
  ASSERT_GT(answer.reserved[nvme], 0);
  EXPECT_EQ(answer.reserved[nvme], plan.fullest.peaks.at(Tier::nvme).peak);
  for (const MemoryReport& rank : train_two_ranks(request.model, config)) {
    EXPECT_EQ(rank.at(Tier::nvme).peak, answer.reserved[nvme]);
  }
  // The limit is exact to the byte: with one less nothing fits.
  request.limits.nvme = answer.reserved[nvme];
  EXPECT_FALSE(fit(request).best.empty());
  request.limits.nvme = answer.reserved[nvme] - 1;
  const FitResult less = fit(request);
  ASSERT_TRUE(less.best.empty());
  EXPECT_EQ(less.nothing->beyond, std::vector{Tier::nvme});
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::string refusal(const char* config, int64_t global_batch = 16) {
  FitRequest request = request_for(int64_t{1} << 30);
  request.space.config = config;
  request.space.config_name = "mine.json";
  request.space.global_batch = global_batch;
  return error_of([&] { fit(request); });
}

TEST(FitErrors, WorldThatDoesNotDivideTheBatch_NamesTheNearestThatDoes) {
  EXPECT_THAT(refusal("{}", 17), HasSubstr("cannot be divided among 2 ranks; the nearest that can: "
                                           "16"));
  EXPECT_THAT(refusal("{}", 1), HasSubstr("the nearest that can: 2"));
  EXPECT_THAT(refusal("{}", 0), HasSubstr("the global batch is open"));
}

TEST(FitErrors, FixedKeysThatContradictEachOther_AreNamed) {
  EXPECT_THAT(refusal(R"({"train_batch_size": 32})"),
              HasSubstr("--global-batch 16 contradicts train_batch_size 32 of mine.json"));
  EXPECT_THAT(refusal(R"({"train_micro_batch_size_per_gpu": 3})"),
              HasSubstr("train_micro_batch_size_per_gpu 3 contradicts a global batch of 16"));
  EXPECT_THAT(refusal(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2})"),
              HasSubstr("train_micro_batch_size_per_gpu 2 x gradient_accumulation_steps 2"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"stage": 0,
                          "offload_optimizer": {"device": "cpu"}}})"),
              HasSubstr("offload_optimizer needs ZeRO stage 1, 2 or 3"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})"),
              HasSubstr("offload_param needs ZeRO stage 3"));
  EXPECT_THAT(refusal(R"({"zero_optimisation": {}})"), HasSubstr("mine.json:1:2"));
}

TEST(FitErrors, KeyThatCannotBeExplained_IsNamed) {
  const FitRequest request = request_for(int64_t{1} << 30);
  const FitResult result = fit(request);
  const auto explain = [&](const char* key) {
    return error_of([&] { explain_key(request, result.best.front(), key); });
  };
  EXPECT_THAT(explain("stege"), HasSubstr("no such key"));
  EXPECT_THAT(explain("device"), HasSubstr("could be zero_optimization.offload_optimizer.device"));
  EXPECT_THAT(explain("zero_optimization"), HasSubstr("no key with a value"));
}

}  // namespace fit_test
}  // namespace zinc::plan
