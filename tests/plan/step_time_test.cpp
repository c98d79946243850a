// The time model: kernels and collectives by formula, streams by a schedule worked out by hand.
#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "core/context.h"
#include "core/error.h"
#include "files/json/parser.h"
#include "nn/models/gpt2.h"
#include "plan/hardware.h"
#include "plan/plan.h"
#include "plan/playback.h"
#include "tensor/tensor.h"

namespace zinc::plan {
namespace step_time_test {

// Figures that make round times. On a GPU streams share no cores.
Hardware round_hardware(DeviceKind device = DeviceKind::cuda, int threads = 0) {
  return {.name = "round",
          .source = "specification",
          .device = device,
          .threads = threads,
          .read_bytes_per_second = 10.0,
          .write_bytes_per_second = 5.0,
          .gemm = {.f32 = 10.0, .bf16 = 20.0},
          .attention = {.f32 = 4.0},
          .other_flops = 8.0,
          .same_host = {.all_gather = {.alpha_seconds = 1.0, .bytes_per_second = 10.0},
                        .reduce_scatter = {.alpha_seconds = 3.0, .bytes_per_second = 2.0}}};
}

WorkCost gemm_of(int64_t flops) { return {.kind = WorkKind::gemm, .flops = flops}; }
WorkCost transfer_of(int64_t bytes, int ranks) {
  return {
      .kind = WorkKind::collective, .bytes_read = bytes, .bytes_written = bytes, .ranks = ranks};
}
// A kernel that takes this many seconds on round_hardware().
WorkCost kernel_of(int64_t seconds) { return gemm_of(10 * seconds); }
// A gather that takes this many seconds: one of alpha, the rest of beta.
WorkCost gather_of(int64_t seconds) { return transfer_of(10 * (seconds - 1), 2); }

constexpr int kCompute = static_cast<int>(StreamRole::compute);
constexpr int kGather = static_cast<int>(StreamRole::gather);

StepTime play_step(WorkLog& log, const RankSpeed& speed) {
  log.mark("end");
  return between({}, play(log, speed).back());
}

TEST(RankSpeed, Kernel_TakesTheLongerOfBytesAndFlops) {
  Hardware hardware = round_hardware();
  hardware.launch_seconds = 0.5;
  const RankSpeed speed(hardware, 1, 1);
  // 10 / 10 + 20 / 5 = 5 s of memory beside 40 / 10 and 60 / 10 s of products.
  const auto gemm = [](int64_t flops, DType dtype) {
    return WorkCost{.kind = WorkKind::gemm,
                    .dtype = dtype,
                    .bytes_read = 10,
                    .bytes_written = 20,
                    .flops = flops};
  };
  EXPECT_DOUBLE_EQ(speed.seconds("gemm", gemm(40, DType::f32), 1), 5.5);
  EXPECT_DOUBLE_EQ(speed.seconds("gemm", gemm(60, DType::f32), 1), 6.5);
  EXPECT_DOUBLE_EQ(speed.seconds("gemm", gemm(120, DType::bf16), 1), 6.5);
  EXPECT_DOUBLE_EQ(speed.seconds("gelu", {.flops = 16}, 1), 2.5);
  EXPECT_DOUBLE_EQ(speed.seconds("attention", {.kind = WorkKind::attention, .flops = 16}, 1), 4.5);
}

TEST(RankSpeed, RateThatTheFileLacks_IsNamedWithItsCure) {
  const RankSpeed speed(round_hardware(), 1, 1);
  try {
    speed.seconds("attention", {.kind = WorkKind::attention, .dtype = DType::bf16, .flops = 1}, 1);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("flops_per_second.attention.bf16"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("zinc bench ceilings"), std::string::npos);
  }
}

TEST(RankSpeed, RanksOfACpuHost_ShareItsBandwidthAndCores) {
  const RankSpeed speed(round_hardware(DeviceKind::cpu, 8), 2, 4);
  EXPECT_DOUBLE_EQ(speed.seconds("copy", {.bytes_read = 10}, 2), 4.0);  // a quarter of 10 B/s
  EXPECT_DOUBLE_EQ(speed.seconds("gemm", gemm_of(10), 2), 4.0);         // 2 of 8 threads
  EXPECT_DOUBLE_EQ(speed.cores(), 2.0);
}

TEST(RankSpeed, Collective_CountsPeersOnTheHostAndBeyond) {
  Hardware hardware = round_hardware();
  hardware.between_hosts =
      CollectiveLinks{.all_gather = {.alpha_seconds = 2.0, .bytes_per_second = 5.0},
                      .reduce_scatter = {.alpha_seconds = 4.0, .bytes_per_second = 1.0}};
  const RankSpeed speed(hardware, 1, 2);
  // One of three peers is on the host: 1 + 10 / 10, and 2 x 2 + 20 / 5 for the others.
  EXPECT_DOUBLE_EQ(speed.seconds("all_gather", transfer_of(30, 4), 1), 10.0);
  // 3 + 10 / 2, and 2 x 4 + 20 / 1.
  EXPECT_DOUBLE_EQ(speed.seconds("reduce_scatter", transfer_of(30, 4), 1), 36.0);
  EXPECT_DOUBLE_EQ(speed.seconds("all_reduce", transfer_of(60, 4), 1), 46.0);
  EXPECT_DOUBLE_EQ(speed.seconds("all_gather", transfer_of(0, 1), 1), 0.0);
  // A group whose ranks are all on other hosts: 3 x 2 + 30 / 5.
  WorkCost apart = transfer_of(30, 4);
  apart.near_ranks = 1;
  EXPECT_DOUBLE_EQ(speed.seconds("all_gather", apart, 1), 12.0);
  EXPECT_THROW(RankSpeed(round_hardware(), 1, 2).seconds("all_gather", transfer_of(30, 4), 1),
               ConfigError);
}

TEST(Playback, WaitThatIsThere_ExposesWhatOverlapDoesNotHide) {
  const RankSpeed speed(round_hardware(), 1, 2);
  WorkLog log;
  log.work(kGather, "all_gather", gather_of(3));
  log.work(kCompute, "gemm", kernel_of(2));
  log.wait(kCompute, kGather, log.issued(kGather));
  log.work(kCompute, "gemm", kernel_of(2));
  log.host_wait(kCompute, log.issued(kCompute));
  const StepTime waiting = play_step(log, speed);
  EXPECT_DOUBLE_EQ(waiting.step_seconds, 5.0);  // 0-3 gather, 0-2 and 3-5 kernels
  EXPECT_DOUBLE_EQ(waiting.compute_seconds, 4.0);
  EXPECT_DOUBLE_EQ(waiting.communication_seconds, 3.0);
  EXPECT_DOUBLE_EQ(waiting.exposed_seconds(), 1.0);

  WorkLog free;
  free.work(kGather, "all_gather", gather_of(3));
  free.work(kCompute, "gemm", kernel_of(2));
  free.work(kCompute, "gemm", kernel_of(2));
  free.host_wait(kCompute, free.issued(kCompute));
  EXPECT_DOUBLE_EQ(play_step(free, speed).step_seconds, 4.0);
}

TEST(Playback, WaitForAnEarlierEvent_DoesNotWaitForLaterWork) {
  const RankSpeed speed(round_hardware(), 1, 2);
  WorkLog log;
  log.work(kGather, "all_gather", gather_of(2));
  const int64_t first = log.issued(kGather);
  log.work(kGather, "all_gather", gather_of(7));
  log.wait(kCompute, kGather, first);
  log.work(kCompute, "gemm", kernel_of(3));
  log.host_wait(kCompute, log.issued(kCompute));
  EXPECT_DOUBLE_EQ(play_step(log, speed).step_seconds, 5.0);
}

// Two kernels of 2 s, a gather of 3 s issued between them.
WorkLog gather_after_kernel() {
  WorkLog log;
  log.work(kCompute, "gemm", kernel_of(2));
  log.work(kGather, "all_gather", gather_of(3));
  log.work(kCompute, "gemm", kernel_of(2));
  log.mark("computed");
  log.host_wait(kGather, log.issued(kGather));
  log.mark("gathered");
  return log;
}

TEST(Playback, CpuHost_IssuesOnlyWhenItsOwnComputeIsDone) {
  // Two threads of compute on a rank's two cores, so the gather of 2-5 makes three on two: the 2 s
  // of the second kernel last 3, and then 1 s of the gather is left.
  Hardware hardware = round_hardware(DeviceKind::cpu, 4);
  hardware.gemm.f32 = 20.0;  // of four threads
  const auto moments = play(gather_after_kernel(), RankSpeed(hardware, 2, 2));
  ASSERT_EQ(moments.size(), 2u);
  EXPECT_DOUBLE_EQ(moments[1].communication, 3.0);
  EXPECT_DOUBLE_EQ(moments[0].seconds, 5.0);
  EXPECT_DOUBLE_EQ(moments[1].seconds, 6.0);
}

TEST(Playback, GpuHost_IssuesAhead) {
  // The gather begins at 0 beside the first kernel; the host reaches the mark at once.
  const WorkLog log = gather_after_kernel();
  const auto moments = play(log, RankSpeed(round_hardware(), 1, 2));
  EXPECT_DOUBLE_EQ(moments[0].seconds, 0.0);
  EXPECT_DOUBLE_EQ(moments[1].seconds, 3.0);
}

TEST(Playback, OneCore_TakesTurns) {
  Hardware hardware = round_hardware(DeviceKind::cpu, 2);
  hardware.gemm.f32 = 20.0;  // of two threads; one rank has one
  hardware.same_host.all_gather = {.alpha_seconds = 1.0, .bytes_per_second = 10.0};
  const WorkLog log = gather_after_kernel();
  const auto moments = play(log, RankSpeed(hardware, 1, 2));
  EXPECT_DOUBLE_EQ(moments[0].seconds, 6.0);  // 2, then 2 s at half speed
  EXPECT_DOUBLE_EQ(moments[1].seconds, 7.0);  // 1 s of the gather was left
}

// --- what the kernels of a real step write down

struct Flops {
  int64_t gemm = 0;
  int64_t attention = 0;
};

constexpr int64_t kBatch = 3, kLength = 16, kWidth = 48, kLayers = 3, kVocabulary = 61;

Flops flops_of_step(int64_t recompute_every) {
  WorkLog log;
  Context context({.device = {.kind = DeviceKind::cpu, .index = 0, .meta = true},
                   .num_threads = 1,
                   .execution = ContextOptions::Execution::inline_all,
                   .work_log = &log});
  const ContextScope scope(context);
  nn::Gpt2Config config;
  config.vocab_size = kVocabulary;
  config.max_positions = 32;
  config.hidden_size = kWidth;
  config.num_layers = kLayers;
  config.num_heads = 4;
  nn::Gpt2 model(config);
  model.set_recompute_every(recompute_every);
  const Tensor ids = Tensor::zeros({kBatch, kLength}, DType::i32);
  const Tensor loss = model.loss({.tensors = {{"input_ids", ids}, {"labels", ids}},
                                  .num_targets = kBatch * kLength,
                                  .num_tokens = kBatch * kLength});
  autograd::backward(loss);
  Flops flops;
  for (const WorkLog::Entry& entry : log.entries()) {
    if (entry.cost.kind == WorkKind::gemm) flops.gemm += entry.cost.flops;
    if (entry.cost.kind == WorkKind::attention) flops.attention += entry.cost.flops;
  }
  return flops;
}

// 12 C^2 weights of a block are multiplied with every token, and the V C of the head.
constexpr int64_t kTokens = kBatch * kLength;
constexpr int64_t kBlocks = kLayers * 12 * kWidth * kWidth;
constexpr int64_t kHead = kVocabulary * kWidth;
// Pairs of tokens that a causal mask lets see each other.
constexpr int64_t kPairs = kBatch * kLength * (kLength + 1) / 2;

TEST(WorkLog, StepOfGpt2_MultipliesEveryWeightThriceAndScoresTwiceAndFiveTimes) {
  const Flops flops = flops_of_step(0);
  EXPECT_EQ(flops.gemm, 6 * (kBlocks + kHead) * kTokens);
  EXPECT_EQ(flops.attention, kLayers * (2 + 5) * 2 * kWidth * kPairs);
}

TEST(WorkLog, Recomputation_AddsAForwardOfTheBlocks) {
  const Flops flops = flops_of_step(1);
  EXPECT_EQ(flops.gemm, (8 * kBlocks + 6 * kHead) * kTokens);
  EXPECT_EQ(flops.attention, kLayers * (2 + 2 + 5) * 2 * kWidth * kPairs);
}

// --- the plan

Plan plan_with(int world, int64_t prefetch_numel, std::optional<Hardware> hardware,
               DeviceKind device = DeviceKind::cuda) {
  nn::Gpt2Config model;
  model.vocab_size = kVocabulary;
  model.max_positions = 32;
  model.hidden_size = kWidth;
  model.num_layers = 6;
  model.num_heads = 4;
  train::Config config;
  config.engine.batch = {.micro_batch = 2, .accumulation = 1};
  config.engine.precision.dtype = DType::f32;
  config.engine.zero.stage = 3;
  config.engine.zero.param_persistence_threshold = 0;
  config.engine.zero.max_reuse_distance = 0;
  config.engine.zero.prefetch_bucket_size = prefetch_numel;
  return make_plan({.config = model}, config,
                   {.world = world,
                    .seq = 24,
                    .num_threads = 1,
                    .device = {.kind = device},
                    .backend = world == 1 ? "single" : "nccl",
                    .ranks_per_host = world,
                    .hardware = std::move(hardware)});
}

// A step's compute and communication last about as long as each other.
Hardware fast_hardware() {
  Hardware hardware = round_hardware();
  hardware.read_bytes_per_second = hardware.write_bytes_per_second = 1e12;
  hardware.gemm.f32 = hardware.attention.f32 = hardware.other_flops = 1e12;
  hardware.same_host.all_gather = {.alpha_seconds = 1e-6, .bytes_per_second = 4e10};
  hardware.same_host.reduce_scatter = hardware.same_host.all_gather;
  return hardware;
}

TEST(Plan, Prefetch_HidesGathersBehindCompute) {
  const Plan without = plan_with(2, 0, fast_hardware());
  const Plan with = plan_with(2, 1'000'000, fast_hardware());
  ASSERT_TRUE(with.fullest.time && without.fullest.time);
  EXPECT_NEAR(with.fullest.time->communication_seconds, without.fullest.time->communication_seconds,
              1e-9 * with.fullest.time->communication_seconds);
  EXPECT_LT(with.fullest.time->exposed_seconds(), 0.8 * without.fullest.time->exposed_seconds());
  EXPECT_GT(with.fullest.time->exposed_seconds(), 0.0);
  EXPECT_DOUBLE_EQ(*with.tokens_per_second(), 2 * 2 * 24 / with.fullest.time->step_seconds);
}

TEST(Plan, OneRank_ExposesNoCommunication) {
  const Plan plan = plan_with(1, 0, round_hardware(DeviceKind::cpu, 1), DeviceKind::cpu);
  ASSERT_TRUE(plan.fullest.time);
  EXPECT_EQ(plan.fullest.time->communication_seconds, 0.0);
  // The sums are made in another order.
  EXPECT_NEAR(plan.fullest.time->exposed_seconds(), 0.0, 1e-9 * plan.fullest.time->step_seconds);
  EXPECT_GT(plan.fullest.time->compute_seconds, 0.0);
}

TEST(Plan, TimeModel_ChangesNoByte) {
  const Plan with = plan_with(2, 1'000'000, fast_hardware());
  const Plan without = plan_with(2, 1'000'000, std::nullopt);
  EXPECT_FALSE(without.fullest.time);
  EXPECT_EQ(with.fullest.device_peak(), without.fullest.device_peak());
  EXPECT_EQ(with.fullest.kernel_flops, without.fullest.kernel_flops);
  EXPECT_GT(with.fullest.kernel_flops, 0);
}

// States on NVMe: read, updated and written once per step.
TEST(Plan, SlowDisk_IsWhatAStepTakes) {
  train::Config config;
  config.engine.batch = {.micro_batch = 2, .accumulation = 1};
  config.engine.precision.dtype = DType::f32;
  config.engine.zero.stage = 3;
  config.engine.zero.offload_optimizer = {.device = zero::OffloadDevice::nvme, .nvme_path = "/d"};
  nn::Gpt2Config model;
  model.vocab_size = kVocabulary;
  model.max_positions = 32;
  model.hidden_size = kWidth;
  model.num_layers = 2;
  model.num_heads = 4;
  const auto plan = [&](std::optional<Disk> disk, int ranks_per_host) {
    Hardware hardware = fast_hardware();
    hardware.disk = disk;
    hardware.host = HostRates{.threads = 1,
                              .to_device_bytes_per_second = 1e12,
                              .to_host_bytes_per_second = 1e12,
                              .update_bytes_per_second = 1e30};  // also with two ranks
    return make_plan({.config = model}, config,
                     {.seq = 24,
                      .device = {.kind = DeviceKind::cuda},
                      .backend = "single",
                      .ranks_per_host = ranks_per_host,
                      .hardware = hardware});
  };
  const Plan without = plan({}, 1);
  const offload::SwapTraffic& swap = without.fullest.swap;
  ASSERT_GT(swap.bytes_read, 0);
  EXPECT_FALSE(without.fullest.time->swap_seconds);
  EXPECT_NE(describe(without).find("no time without \"disk\""), std::string::npos);
  const double played = without.fullest.time->step_seconds;
  const auto reads = static_cast<double>(swap.bytes_read);
  const auto writes = static_cast<double>(swap.bytes_written);
  // A disk that takes a hundred times as long as the rest, and one that takes a hundredth.
  for (const double factor : {100.0, 0.01}) {
    const Disk disk{.read_bytes_per_second = reads / (0.75 * factor * played),
                    .write_bytes_per_second = writes / (0.25 * factor * played)};
    const StepTime time = *plan(disk, 1).fullest.time;
    EXPECT_NEAR(*time.swap_seconds, factor * played, 1e-9 * factor * played);
    EXPECT_NEAR(time.step_seconds, std::max(factor, 1.0) * played, 1e-9 * factor * played);
    EXPECT_NEAR(time.exposed_seconds(), without.fullest.time->exposed_seconds(), 1e-6 * played);
    EXPECT_NEAR(*plan(disk, 2).fullest.time->swap_seconds, 2 * factor * played,
                1e-9 * factor * played);
  }
}

// --- the file

std::string message_of(const std::string& text) {
  try {
    parse_hardware(files::json::parse(text, "hardware.json"));
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in\n" << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(HardwareFile, WhatIsWritten_IsReadBack) {
  Hardware hardware = round_hardware(DeviceKind::cpu, 6);
  hardware.launch_seconds = 2e-6;
  hardware.between_hosts =
      CollectiveLinks{.all_gather = {.alpha_seconds = 0.25, .bytes_per_second = 5.0},
                      .reduce_scatter = {.alpha_seconds = 0.125, .bytes_per_second = 1.0}};
  hardware.same_host.reduce_scatter.alpha_seconds = 1e-5;
  hardware.disk = Disk{.read_bytes_per_second = 3.0, .write_bytes_per_second = 2.0};
  const std::string text = json_of(hardware);
  const Hardware read = parse_hardware(files::json::parse(text, "hardware.json"));
  EXPECT_EQ(json_of(read), text);
  EXPECT_EQ(read.threads, 6);
  EXPECT_EQ(read.gemm.bf16, 20.0);
  EXPECT_EQ(read.gemm.f16, 0.0);
  EXPECT_EQ(read.disk->read_bytes_per_second, 3.0);
  EXPECT_EQ(read.disk->write_bytes_per_second, 2.0);
  EXPECT_EQ(read.same_host.reduce_scatter.alpha_seconds, 1e-5);
  EXPECT_EQ(read.between_hosts->all_gather.bytes_per_second, 5.0);
}

TEST(HardwareFile, Problems_NameKeyPlaceAndCure) {
  Hardware hardware = round_hardware(DeviceKind::cpu, 6);
  hardware.same_host.reduce_scatter.alpha_seconds = 0.5;
  const std::string good = json_of(hardware);
  EXPECT_EQ(message_of(good), "no error");
  const auto expect = [&](const std::string& from, const std::string& to,
                          const std::vector<std::string>& words) {
    const std::string message = message_of(replaced(good, from, to));
    for (const std::string& word : words) {
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
    }
  };
  expect("\"launch_seconds\": 0.0,", "", {"launch_seconds", "is missing", "zinc bench ceilings"});
  expect("\"launch_seconds\": 0.0,", "\"launch_second\": 0, \"launch_seconds\": 0,",
         {"hardware.json:", "unknown key \"launch_second\""});
  expect("\"bf16\"", "\"fp16\"", {"flops_per_second.gemm", "unknown key \"fp16\"", "bf16"});
  expect("\"specification\"", "\"guessed\"", {"source", "measured"});
  expect("\"read_bytes_per_second\": 10", "\"read_bytes_per_second\": 0",
         {"read_bytes_per_second", "more than 0"});
  expect("\"alpha_seconds\": 0.5", "\"alpha_seconds\": -1",
         {"collectives.same_host.reduce_scatter.alpha_seconds", "between 0 and 1"});
  expect("zinc hardware 1", "zinc hardware 9", {"format", "zinc hardware 1"});
  expect("\"threads\": 6", "\"threads\": 0", {"threads"});
}

}  // namespace step_time_test
}  // namespace zinc::plan
