// The time of what lies in host memory: copies, what a GPU's host computes, and the choice between
// the two ways of an update.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/context.h"
#include "core/error.h"
#include "files/json/parser.h"
#include "nn/models/gpt2.h"
#include "plan/plan.h"

namespace zinc::plan {
namespace offload_time_test {

// A GPU whose figures make round times.
Hardware round_gpu() {
  Hardware hardware{.name = "round",
                    .source = "specification",
                    .device = DeviceKind::cuda,
                    .read_bytes_per_second = 10.0,
                    .write_bytes_per_second = 10.0,
                    .gemm = {.f32 = 10.0},
                    .attention = {.f32 = 10.0},
                    .other_flops = 10.0};
  hardware.same_host.all_gather = {.alpha_seconds = 1.0, .bytes_per_second = 10.0};
  hardware.same_host.reduce_scatter = hardware.same_host.all_gather;
  hardware.host = HostRates{.threads = 4,
                            .to_device_bytes_per_second = 5.0,
                            .to_host_bytes_per_second = 2.0,
                            .update_bytes_per_second = 20.0};
  return hardware;
}

WorkCost bytes_at(WorkPlace place, int64_t read, int64_t written) {
  return {.place = place, .bytes_read = read, .bytes_written = written};
}

TEST(RankSpeed, CopiesTakeTheLinkAndUpdatesTheHostsMemory) {
  const RankSpeed one(round_gpu(), 1, 1);
  const RankSpeed four(round_gpu(), 1, 4);
  for (const RankSpeed* speed : {&one, &four}) {  // every GPU has its own link
    EXPECT_DOUBLE_EQ(speed->seconds("transfer", bytes_at(WorkPlace::to_device, 30, 30), 1), 6.0);
    EXPECT_DOUBLE_EQ(speed->seconds("transfer", bytes_at(WorkPlace::to_host, 30, 30), 1), 15.0);
  }
  const WorkCost update = bytes_at(WorkPlace::host, 32, 28);
  EXPECT_DOUBLE_EQ(one.seconds("adamw", update, 1), 3.0);
  EXPECT_DOUBLE_EQ(four.seconds("adamw", update, 1), 12.0);  // ranks share the host
  EXPECT_TRUE(one.is_offload(update));
  EXPECT_FALSE(one.is_offload(bytes_at(WorkPlace::device, 30, 30)));
}

TEST(RankSpeed, GpuFileWithoutItsHost_SaysWhatIsMissing) {
  Hardware hardware = round_gpu();
  hardware.host.reset();
  const RankSpeed speed(hardware, 1, 1);
  try {
    speed.seconds("adamw", bytes_at(WorkPlace::host, 1, 1), 1);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("no \"host\""), std::string::npos) << error.what();
  }
}

// Work of a CPU rank is compute, wherever the bytes lie; without a link a copy is a kernel.
TEST(RankSpeed, CpuHost_IsTheDevice) {
  Hardware hardware = round_gpu();
  hardware.device = DeviceKind::cpu;
  hardware.threads = 1;
  const WorkCost update = bytes_at(WorkPlace::host, 30, 30);
  const WorkCost copy = bytes_at(WorkPlace::to_device, 30, 30);
  EXPECT_FALSE(RankSpeed(hardware, 1, 1).is_offload(update));
  EXPECT_DOUBLE_EQ(RankSpeed(hardware, 1, 1).seconds("adamw", update, 1), 6.0);
  EXPECT_DOUBLE_EQ(RankSpeed(hardware, 1, 2).seconds("adamw", update, 1), 12.0);
  EXPECT_TRUE(RankSpeed(hardware, 1, 1).is_offload(copy));
  EXPECT_DOUBLE_EQ(RankSpeed(hardware, 1, 2).seconds("transfer", copy, 1), 6.0);
  hardware.host.reset();
  EXPECT_DOUBLE_EQ(RankSpeed(hardware, 1, 1).seconds("transfer", copy, 1), 6.0);
  EXPECT_DOUBLE_EQ(RankSpeed(hardware, 1, 2).seconds("transfer", copy, 1), 12.0);
}

// A gradient of 4 s leaves at once beside 2 s of compute, the host updates it for 3 s, the weights
// come in 2 s: 4 + 3 + 2 s where compute alone takes 2.
TEST(Playback, GpuHost_ComputesBesideTheDeviceAndBehindItsEvents) {
  constexpr int kCompute = static_cast<int>(StreamRole::compute);
  constexpr int kIn = static_cast<int>(StreamRole::copy_in);
  constexpr int kOut = static_cast<int>(StreamRole::copy_out);
  WorkLog log;
  log.work(kOut, "transfer", bytes_at(WorkPlace::to_host, 8, 8));
  log.work(kCompute, "gemm", {.kind = WorkKind::gemm, .flops = 20});
  log.wait(kHostStream, kOut, log.issued(kOut));
  log.work(kHostStream, "adamw", bytes_at(WorkPlace::host, 30, 30));
  log.wait(kIn, kHostStream, log.issued(kHostStream));
  log.work(kIn, "transfer", bytes_at(WorkPlace::to_device, 10, 10));
  log.wait(kCompute, kIn, log.issued(kIn));
  log.host_wait(kCompute, log.issued(kCompute));
  log.mark("end");
  const RankSpeed speed(round_gpu(), 1, 1);
  const StepTime time = between({}, play(log, speed).back());
  EXPECT_DOUBLE_EQ(time.step_seconds, 9.0);
  EXPECT_DOUBLE_EQ(time.compute_seconds, 2.0);
  EXPECT_DOUBLE_EQ(time.offload.to_host, 4.0);
  EXPECT_DOUBLE_EQ(time.offload.on_host, 3.0);
  EXPECT_DOUBLE_EQ(time.offload.to_device, 2.0);
  EXPECT_DOUBLE_EQ(between({}, play(log, speed, true).back()).step_seconds, 2.0);
}

// --- plans of a GPU

constexpr int64_t kWidth = 64, kVocabulary = 128;

train::Config offloaded(zero::OffloadDevice device) {
  train::Config config;
  config.engine.batch = {.micro_batch = 2, .accumulation = 1};
  config.engine.precision.dtype = DType::f32;
  config.engine.zero.stage = 2;
  config.engine.zero.offload_optimizer = {.device = device, .nvme_path = "/d"};
  return config;
}

Plan plan_of(const train::Config& config, std::optional<Hardware> hardware, int64_t room = 0) {
  nn::Gpt2Config model;
  model.vocab_size = kVocabulary;
  model.max_positions = 32;
  model.hidden_size = kWidth;
  model.num_layers = 2;
  model.num_heads = 4;
  return make_plan({.config = model}, config,
                   {.seq = 16,
                    .device = {.kind = DeviceKind::cuda},
                    .backend = "single",
                    .hardware = std::move(hardware),
                    .device_room = room});
}

// Elements whose states are kept, those that fill up segments included.
int64_t kept_elements(const Plan& plan) {
  return plan.fullest.peaks.at(Tier::pinned_host, Label::optimizer).peak / 12;
}

TEST(Plan, OfAGpuWhoseHostUpdates_CountsAndTimesWhatMoves) {
  train::Config config = offloaded(zero::OffloadDevice::cpu);
  config.engine.offload_step = zero::OffloadStep::host;
  config.engine.overlap_update = false;
  const Plan plan = plan_of(config, round_gpu());
  ASSERT_TRUE(plan.fullest.time) << plan.fullest.no_time;
  const int64_t n = kept_elements(plan);
  ASSERT_GT(n, 2 * 12 * kWidth * kWidth);
  // Gradients leave; weights come, and the factor of the update leaves (4 bytes).
  EXPECT_EQ(plan.fullest.copies, (CopyTraffic{.to_device = 4 * n, .to_host = 4 * n + 4}));
  const StepTime& time = *plan.fullest.time;
  EXPECT_DOUBLE_EQ(time.offload.to_device, static_cast<double>(4 * n) / 5.0);
  EXPECT_DOUBLE_EQ(time.offload.to_host, static_cast<double>(4 * n + 4) / 2.0);
  // AdamW reads 16 and writes 12 bytes; the norm reads 4, and what it writes is little.
  const double updates = static_cast<double>(32 * n) / 20.0;
  EXPECT_GT(time.offload.on_host, updates);
  EXPECT_LT(time.offload.on_host, 1.01 * updates);
  EXPECT_GT(time.exposed_offload_seconds, updates);  // behind the norm of all
  EXPECT_NEAR(time.step_seconds,
              time.compute_seconds + time.exposed_offload_seconds + time.exposed_seconds(),
              1e-9 * time.step_seconds);
  EXPECT_LT(time.exposed_seconds(), 0.1 * time.step_seconds);  // a lone rank's reductions
  EXPECT_NE(describe(plan).find("computed by the host"), std::string::npos);
}

TEST(Plan, OfAGpuThatUpdates_BringsAndReturnsStates) {
  train::Config config = offloaded(zero::OffloadDevice::cpu);
  config.engine.offload_step = zero::OffloadStep::device;
  const Plan plan = plan_of(config, round_gpu());
  ASSERT_TRUE(plan.fullest.time) << plan.fullest.no_time;
  const int64_t n = kept_elements(plan);
  // Weights, two moments and the gradient come; the gradient had left, weights and moments return.
  EXPECT_EQ(plan.fullest.copies, (CopyTraffic{.to_device = 16 * n, .to_host = 16 * n}));
  const double norm = static_cast<double>(4 * n) / 20.0;
  EXPECT_LT(plan.fullest.time->offload.on_host, 1.1 * norm);
}

TEST(Plan, OfAGpuWithADisk_TimesEveryTier) {
  const train::Config config = offloaded(zero::OffloadDevice::nvme);
  Hardware hardware = round_gpu();
  hardware.disk = Disk{.read_bytes_per_second = 1.0, .write_bytes_per_second = 1.0};
  const Plan plan = plan_of(config, hardware);
  ASSERT_TRUE(plan.fullest.time) << plan.fullest.no_time;
  EXPECT_GT(plan.fullest.time->offload.on_host, 0.0);
  EXPECT_DOUBLE_EQ(*plan.fullest.time->swap_seconds,
                   static_cast<double>(plan.fullest.swap.bytes_read) +
                       static_cast<double>(plan.fullest.swap.bytes_written));
  EXPECT_GT(plan.fullest.time->exposed_swap_seconds, 0.0);
}

// --- updates beside passes

enum class When : uint8_t { late, early };

struct Rates {
  double update = 1.0;  // how long the host is at the update of a step, in forward passes
  double copies = 0.2;  // likewise: the weights on their way to the device, and all gathers of them
};

struct Beside {
  StepTime within;  // the update stays in its step
  StepTime beside;  // by default
  double forward = 0.0;
};

Beside times_of(When when, int stage, int world, const Rates& rates) {
  train::Config config = offloaded(zero::OffloadDevice::cpu);
  config.engine.offload_step = zero::OffloadStep::host;
  config.engine.zero.stage = stage;
  config.engine.zero.param_persistence_threshold = 0;
  config.engine.zero.max_reuse_distance = 0;
  config.engine.gradient.clipping = when == When::late ? 1.0 : 0.0;
  nn::Gpt2Config model;
  model.vocab_size = kVocabulary;
  model.max_positions = 32;
  model.hidden_size = kWidth;
  model.num_layers = 8;
  model.num_heads = 4;
  Hardware hardware = round_gpu();
  hardware.read_bytes_per_second = hardware.write_bytes_per_second = 1e9;
  const auto plan = [&](std::optional<bool> overlap) {
    config.engine.overlap_update = overlap;
    return make_plan({.config = model}, config,
                     {.world = world,
                      .seq = 16,
                      .device = {.kind = DeviceKind::cuda},
                      .backend = world == 1 ? "single" : "nccl",
                      .ranks_per_host = world,
                      .hardware = hardware});
  };
  const Plan measured = plan(false);
  const double forward = measured.fullest.time->compute_seconds / 3.0;
  const auto elements = static_cast<double>(kept_elements(measured));  // of one rank
  hardware.host->update_bytes_per_second = 28.0 * elements * world / (rates.update * forward);
  hardware.host->to_device_bytes_per_second = 4.0 * elements / (rates.copies * forward);
  hardware.host->to_host_bytes_per_second = hardware.host->to_device_bytes_per_second;
  hardware.same_host.all_gather = {.alpha_seconds = 1e-12,
                                   .bytes_per_second = 4.0 * elements / (rates.copies * forward)};
  hardware.same_host.reduce_scatter = hardware.same_host.all_gather;
  return {.within = *plan(false).fullest.time,
          .beside = *plan(std::nullopt).fullest.time,
          .forward = forward};
}

constexpr std::pair<int, int> kStagesAndWorlds[] = {{1, 1}, {2, 2}, {3, 2}};

// Updates are hidden as far as there are passes to hide them, that is, except for those of the
// group that is used first, and beside the passes of the last step.
TEST(Plan, OfUpdatesBesidePasses_HidesThem) {
  for (const When when : {When::late, When::early}) {
    for (const auto& [stage, world] : kStagesAndWorlds) {
      for (const Rates& rates : {Rates{1.0, 0.2}, Rates{5.0, 0.01}}) {
        const Beside times = times_of(when, stage, world, rates);
        const double passes = times.forward * (when == When::late ? 1.0 : 2.0);
        const double hidden = std::min(passes, rates.update * times.forward);
        EXPECT_LT(times.beside.step_seconds, times.within.step_seconds - 0.75 * hidden)
            << "stage " << stage << ", world " << world << ", update " << rates.update;
        EXPECT_NEAR(times.beside.offload.on_host, times.within.offload.on_host, 1e-9 * hidden);
        EXPECT_NEAR(times.beside.compute_seconds, times.within.compute_seconds, 1e-9 * hidden);
      }
    }
  }
}

TEST(Plan, OfUpdatesBesidePasses_IsNeverTheLongerOne) {
  for (const When when : {When::late, When::early}) {
    for (const auto& [stage, world] : kStagesAndWorlds) {
      for (const Rates& rates : {Rates{0.01, 0.01}, Rates{0.01, 2.0}, Rates{5.0, 2.0}}) {
        const Beside times = times_of(when, stage, world, rates);
        EXPECT_LT(times.beside.step_seconds, times.within.step_seconds)
            << "stage " << stage << ", world " << world << ", update " << rates.update
            << ", copies " << rates.copies;
      }
    }
  }
}

TEST(OffloadChoice, IsTheShorterStepAndItsPlan) {
  Hardware hardware = round_gpu();
  for (const bool slow_host : {true, false}) {
    hardware.host->update_bytes_per_second = slow_host ? 0.5 : 500.0;
    const Plan chosen = plan_of(offloaded(zero::OffloadDevice::cpu), hardware);
    ASSERT_TRUE(chosen.offload_choice);
    const OffloadChoice& choice = *chosen.offload_choice;
    const auto expected = slow_host ? zero::OffloadStep::device : zero::OffloadStep::host;
    EXPECT_EQ(choice.step, expected) << choice.why;
    train::Config config = offloaded(zero::OffloadDevice::cpu);
    for (const auto step : {zero::OffloadStep::host, zero::OffloadStep::device}) {
      config.engine.offload_step = step;
      const Plan given = plan_of(config, hardware);
      EXPECT_FALSE(given.offload_choice);
      const auto& modelled =
          step == zero::OffloadStep::host ? choice.host_seconds : choice.device_seconds;
      EXPECT_DOUBLE_EQ(modelled.value(), given.fullest.time->step_seconds);
      if (step != expected) continue;
      EXPECT_EQ(chosen.fullest.device_peak(), given.fullest.device_peak());
      EXPECT_EQ(chosen.fullest.copies, given.fullest.copies);
    }
    const std::string words = describe(chosen);
    EXPECT_NE(words.find(slow_host ? "offload_step: device, " : "offload_step: host, "),
              std::string::npos);
    EXPECT_NE(words.find(slow_host ? "where the host takes" : "where the device takes"),
              std::string::npos);
    EXPECT_NE(json_of(chosen).find("\"device_step_seconds\""), std::string::npos);
  }
}

TEST(OffloadChoice, WithoutWhatItNeeds_IsTheHostAndSaysWhy) {
  Hardware slow_host = round_gpu();
  slow_host.host->update_bytes_per_second = 0.5;
  Hardware without_host = slow_host;
  without_host.host.reset();
  const train::Config config = offloaded(zero::OffloadDevice::cpu);
  const auto expect = [](const Plan& plan, const std::string& words) {
    ASSERT_TRUE(plan.offload_choice);
    EXPECT_EQ(plan.offload_choice->step, zero::OffloadStep::host);
    EXPECT_NE(plan.offload_choice->why.find(words), std::string::npos) << plan.offload_choice->why;
  };
  expect(plan_of(config, std::nullopt), "no hardware file");
  expect(plan_of(config, without_host), "no \"host\"");
  expect(plan_of(config, slow_host, 1000), "do not fit");
  train::Config limited = config;
  limited.engine.offload_step = zero::OffloadStep::host;
  limited.device_memory_limit = plan_of(limited, std::nullopt).fullest.device_peak();
  limited.engine.offload_step = zero::OffloadStep::automatic;
  expect(plan_of(limited, slow_host), "limit");
  EXPECT_FALSE(plan_of(offloaded(zero::OffloadDevice::none), slow_host).offload_choice);
}

// Two buffers of weights, two moments and a gradient.
TEST(Plan, TilesThatPassThroughTheDevice_AreBoundedByDefault) {
  nn::Gpt2Config model;  // GPT-2's own: 38.6 million weights in one embedding
  train::Config config = offloaded(zero::OffloadDevice::cpu);
  config.engine.offload_step = zero::OffloadStep::device;
  const auto peak = [&](int64_t tile) {
    config.engine.zero.sub_group_size = tile;
    const Plan plan = make_plan({.config = model}, config, {.seq = 16, .backend = "single"});
    return plan.fullest.peaks.at(Tier::device, Label::staging).peak;
  };
  constexpr int64_t kTile = int64_t{1} << 23;
  EXPECT_EQ(peak(0), peak(kTile));
  EXPECT_EQ(peak(2 * kTile) - peak(kTile), 2 * 16 * kTile);
}

// --- the file

TEST(HardwareFile, HostIsReadBack_AndMayBeAbsent) {
  Hardware hardware = round_gpu();
  const std::string text = json_of(hardware);
  const Hardware read = parse_hardware(files::json::parse(text, "hardware.json"));
  EXPECT_EQ(json_of(read), text);
  EXPECT_EQ(read.host->threads, 4);
  EXPECT_EQ(read.host->to_device_bytes_per_second, 5.0);
  EXPECT_EQ(read.host->to_host_bytes_per_second, 2.0);
  EXPECT_EQ(read.host->update_bytes_per_second, 20.0);
  hardware.host.reset();
  EXPECT_FALSE(parse_hardware(files::json::parse(json_of(hardware), "hardware.json")).host);
  // A CPU's host has links alone.
  Hardware cpu = round_gpu();
  cpu.device = DeviceKind::cpu;
  cpu.threads = 2;
  EXPECT_EQ(parse_hardware(files::json::parse(json_of(cpu), "hardware.json"))
                .host->update_bytes_per_second,
            0.0);
  const std::string link = "\"to_host_bytes_per_second\": 2.0,";
  std::string broken = text;
  ASSERT_NE(broken.find(link), std::string::npos) << text;
  broken.erase(broken.find(link), link.size());
  try {
    parse_hardware(files::json::parse(broken, "hardware.json"));
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("\"to_host_bytes_per_second\" is missing"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace offload_time_test
}  // namespace zinc::plan
