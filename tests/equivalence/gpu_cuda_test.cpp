// Whole training steps on a GPU: stages 0 to 3 against each other, against the CPU, and against the
// plan. On the emulator under several schedules of its streams, in which what no event orders runs
// at any time: a missing wait or an early reuse of memory shows as a wrong bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "comm/nccl/nccl_communicator.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "hub/adapter.h"
#include "hub/model.h"
#include "kernels/gemm_choice.h"
#include "plan/plan.h"
#include "tests/equivalence/gpu_schedules.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/tiny_model.h"
#include "train/checkpoint/save_checkpoint.h"
#include "train/trainer.h"
#include "train/weights/save_model.h"
#include "zero/engine.h"
#if defined(ZINC_CUDA_EMULATED)
#include "tests/emulator/runtime.h"
#endif

namespace zinc {
namespace gpu_cuda_test {

using zero::test::Family;
using zero::test::make_batch;

constexpr Device kGpu{.kind = DeviceKind::cuda};

struct Case {
  int world = 1;
  Family family = Family::gpt2;
  DType dtype = DType::f32;
  int64_t accumulation = 1;
  bool nccl = false;   // a GPU for every rank; else all share the first one
  bool wgmma = false;  // the kernel of products for compute capability 9.0, where it can
};

zero::EngineConfig config_of(const Case& c, int stage) {
  zero::EngineConfig config;
  config.batch.micro_batch = 2;
  config.batch.accumulation = c.accumulation;
  config.precision.dtype = c.dtype;
  config.precision.check_overflow = c.dtype != DType::f32;
  if (c.dtype == DType::f16) config.precision.loss_scale = {.dynamic = true};
  config.gradient.clipping = 0.5;
  if (c.accumulation > 1) config.gradient.reduce_schedule = zero::ReduceSchedule::micro_step;
  config.optimizer.hyper = {.lr = 1e-2, .weight_decay = 0.1};
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 100;
  config.zero.max_reuse_distance = 0;
  config.zero.overlap_comm = true;
  if (c.wgmma) config.wgmma = kernels::WgmmaUse::always;
  return config;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> weights;  // and first moments
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome run(const Case& c, int stage, int steps, Device device = kGpu) {
  Outcome outcome;
  comm::ConnectOptions connect{.device = device, .seed = 5, .num_threads = 1};
  connect.deadline = std::chrono::minutes(1);  // a hang is an error
  connect.spread_devices = c.nccl;
  connect.device_collectives =
      c.nccl ? comm::DeviceCollectives::nccl : comm::DeviceCollectives::staged;
  comm::run_local_ranks(c.world, connect, [&](comm::World& world) {
    const std::unique_ptr<nn::Model> model = zero::test::make_tiny_model(c.family);
    zero::Engine engine(*model, config_of(c, stage), world);
    for (int step = 0; step < steps; ++step) {
      zero::StepResult result;
      for (int64_t micro = 0; micro < c.accumulation; ++micro) {
        const int64_t index = (step * c.accumulation + micro) * world.size() + world.rank();
        engine.backward(engine.forward(make_batch(c.family, index)));
        result = engine.step();
      }
      if (world.rank() == 0) {
        outcome.losses.push_back(result.loss);
        const bool skipped = result.outcome == zero::StepOutcome::skipped_overflow;
        outcome.norms.push_back(skipped ? -1.0 : result.gradient_norm);
      }
    }
    EXPECT_EQ(world.context().slot<kernels::GemmChoice>().num_runs > 0, c.wgmma);
    for (const auto& [name, parameter] : model->named_parameters()) {
      for (const Tensor& tensor :
           {engine.parameter(name), engine.optimizer_state(name, "exp_avg")}) {
        const auto values = tensor.to_vector<float>();
        if (world.rank() != 0) continue;
        outcome.weights.insert(outcome.weights.end(), values.begin(), values.end());
      }
    }
  });
  return outcome;
}

constexpr Case kCases[] = {{1},
                           {2},
                           {2, Family::llama},
                           {1, Family::gpt2, DType::bf16, 2},
                           {2, Family::gpt2, DType::f16},
                           {3, Family::gpt2, DType::f32, 1, true},
                           {2, Family::llama, DType::bf16, 1, true},
                           {1, Family::t5},
                           {2, Family::roberta, DType::bf16},
                           {2, Family::gpt2, DType::bf16, 1, false, true},
                           {1, Family::llama, DType::bf16, 2, false, true}};

class GpuStages : public testing::TestWithParam<int> {  // an index of kCases
 protected:
  ~GpuStages() override {
    choose(kSchedules[0]);
#if defined(ZINC_CUDA_EMULATED)
    emulator::set_num_devices(1);
#endif
  }
  static void run_schedules(bool all);
};
class GpuStagesSlow : public GpuStages {};

// all = false: every stage under the last schedule, which mixes the others, and each other schedule
// on one stage. Over the cases each schedule meets each stage.
void GpuStages::run_schedules(bool all) {
  const Case c = kCases[GetParam()];
  constexpr int kSteps = 2;
  constexpr int kLast = static_cast<int>(std::size(kSchedules)) - 1;
  std::optional<Outcome> reference;
  if (c.nccl) {
#if defined(ZINC_CUDA_EMULATED)
    emulator::set_num_devices(c.world);
#endif
    if (!comm::why_no_nccl().empty()) GTEST_SKIP() << comm::why_no_nccl();
    if (static_cast<int>(cuda_devices().size()) < c.world) GTEST_SKIP() << "needs more GPUs";
    Case staged = c;
    staged.nccl = false;
    reference = run(staged, 0, kSteps);
  }
  for (const int stage : {0, 1, 2, 3}) {
    for (int i = 0; i <= kLast; ++i) {
      if (!all && i != kLast && stage != (GetParam() + i) % 4) continue;
      choose(kSchedules[i]);
      const Outcome outcome = run(c, stage, kSteps);
      ASSERT_EQ(outcome.losses.size(), static_cast<size_t>(kSteps));
      if (!reference) reference = outcome;
      EXPECT_EQ(outcome, *reference) << "stage " << stage << ", schedule " << kSchedules[i].name;
    }
  }
}

TEST_P(GpuStages, GiveTheSameBitsUnderSchedules) { run_schedules(false); }
TEST_P(GpuStagesSlow, GiveTheSameBitsUnderEverySchedule) { run_schedules(true); }

std::string name_of_case(const testing::TestParamInfo<int>& info) {
  const Case& c = kCases[info.param];
  return str("World", c.world, name_of(c.family), name_of(c.dtype), "Accumulation", c.accumulation,
             c.nccl ? "Nccl" : "", c.wgmma ? "Wgmma" : "");
}
constexpr int kNumCases = static_cast<int>(std::size(kCases));
INSTANTIATE_TEST_SUITE_P(Reduced, GpuStages, testing::Range(0, kNumCases), name_of_case);
INSTANTIATE_TEST_SUITE_P(Whole, GpuStagesSlow, testing::Range(0, kNumCases), name_of_case);

// Two steps in f32: the rounding of sums in another order, a few thousand epsilons at most after
// AdamW has divided a gradient by its own size. Dropout draws the same numbers on every device.
TEST(Gpu, TrainsAsTheCpuDoes) {
  for (const Family family : zero::test::kFamilies) {
    const Case c{.world = 1, .family = family};
    const Outcome gpu = run(c, 0, 2);
    const Outcome cpu = run(c, 0, 2, kCpu);
    for (size_t i = 0; i < cpu.losses.size(); ++i) {
      EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 1e-5 * std::abs(cpu.losses[i]));
      EXPECT_NEAR(gpu.norms[i], cpu.norms[i], 1e-4 * cpu.norms[i]);
    }
    ASSERT_EQ(gpu.weights.size(), cpu.weights.size());
    double off = 0.0, size = 0.0;
    for (size_t i = 0; i < cpu.weights.size(); ++i) {
      off += std::pow(double{gpu.weights[i]} - double{cpu.weights[i]}, 2);
      size += std::pow(double{cpu.weights[i]}, 2);
    }
    EXPECT_LE(std::sqrt(off / size), 1e-3);
  }
}

#if defined(ZINC_CUDA_EMULATED)
// The equalities above mean little if nothing depended on the events.
TEST(Gpu, MissingEventWaits_ShowAsWrongBits) {
  const Case c{.world = 1};
  choose(kSchedules[0]);
  const Outcome reference = run(c, 3, 2);
  bool shown = false;
  emulator::set_ignores_stream_waits(true);
  for (uint64_t seed = 0; !shown && seed < 20; ++seed) {
    emulator::set_default_schedule(seed);
    try {
      shown = run(c, 3, 2) != reference;
    } catch (const Error&) {
      shown = true;  // such as a token id that no embedding has
    }
  }
  emulator::set_ignores_stream_waits(false);
  choose(kSchedules[0]);
  EXPECT_TRUE(shown);
}

// Waits for one stream alone, those of the allocator among them, which else cover for the others:
// where work runs as late as events allow, the bits are wrong under every seed.
TEST(Gpu, WaitsForOneStreamLeftOut_ShowAsWrongBits) {
  struct Fault {
    int stage;
    StreamRole role;
  };
  const Case c{.world = 1};
  for (const Fault& fault :
       {Fault{2, StreamRole::reduce}, Fault{3, StreamRole::gather}, Fault{3, StreamRole::reduce}}) {
    choose(kSchedules[0]);
    const Outcome reference = run(c, fault.stage, 2);
    const auto shows = [&](uint64_t seed) {
      emulator::set_default_schedule(seed, ShuffledExecutor::Order::latest);
      try {
        return run(c, fault.stage, 2) != reference;
      } catch (const Error&) {  // such as a token id that no embedding has
        return true;
      }
    };
    SCOPED_TRACE(str("stage ", fault.stage, ", waits for ", name_of(fault.role)));
    EXPECT_FALSE(shows(1));
    emulator::set_ignores_waits_for(static_cast<int>(fault.role));
    for (const uint64_t seed : {1, 2}) EXPECT_TRUE(shows(seed)) << "seed " << seed;
    emulator::set_ignores_waits_for(-1);
  }
  choose(kSchedules[0]);
}

#endif

constexpr int64_t kSeq = 24;

class Tokens final : public data::Dataset {
 public:
  int64_t num_samples() const override { return 64; }
  void read(int64_t index, data::Sample& sample) const override {
    for (int64_t i = 0; i < kSeq; ++i) {
      sample.tokens.push_back(static_cast<int32_t>((index * 7 + i) % 61));
      sample.labels.push_back(static_cast<int32_t>((index * 7 + i + 1) % 61));
    }
  }
  std::string describe() const override { return "a pattern"; }
};

TEST(Gpu, PlanIsThePeakOfTheRunToTheByte) {
  nn::Gpt2Config shape;
  shape.vocab_size = 61;
  shape.max_positions = 32;
  shape.hidden_size = 48;
  shape.num_layers = 2;
  shape.num_heads = 4;
  struct Run {
    int stage;
    int world;
    bool nccl = false;
    zero::OffloadDevice optimizer = zero::OffloadDevice::none;
    zero::OffloadDevice parameters = zero::OffloadDevice::none;
    int64_t graph_of = 0;  // micro-batches, each as a CUDA graph
    double ratio = 1.0;
    bool quantized = false;  // under adapters
    optim::OptimizerKind rule = optim::OptimizerKind::adamw;
  };
  constexpr auto kHost = zero::OffloadDevice::cpu;
  constexpr auto kNvme = zero::OffloadDevice::nvme;
  const offload::SwapFolder folder;
  for (const auto& [stage, world, nccl, optimizer, parameters, graph_of, ratio, quantized, rule] :
       {Run{0, 1},
        Run{3, 2},
        Run{3, 2, true},
        Run{1, 2, false, kHost},
        Run{3, 2, true, kHost, kNvme},
        Run{3, 1, false, kNvme, kHost},
        Run{.stage = 0, .world = 1, .graph_of = 1},
        Run{.stage = 1, .world = 2, .graph_of = 4},
        Run{.stage = 2, .world = 2, .nccl = true, .graph_of = 2},
        Run{.stage = 3, .world = 1, .graph_of = 1},
        Run{.stage = 3, .world = 2, .nccl = true, .graph_of = 2},
        Run{.stage = 2, .world = 1, .optimizer = kHost, .ratio = 0.4},
        Run{.stage = 1, .world = 2, .quantized = true},
        Run{.stage = 3, .world = 1, .graph_of = 1, .quantized = true},
        Run{.stage = 3, .world = 2, .parameters = kNvme, .quantized = true},
        Run{.stage = 2,
        .world = 2,
        .nccl = true,
        .graph_of = 2,
        .rule = optim::OptimizerKind::muon},
        Run{.stage = 3, .world = 1, .graph_of = 1, .rule = optim::OptimizerKind::lamb},
        Run{.stage = 1, .world = 2, .rule = optim::OptimizerKind::lamb},
        Run{.stage = 0, .world = 2, .nccl = true, .rule = optim::OptimizerKind::adafactor},
        Run{.stage = 1, .world = 1, .graph_of = 1, .rule = optim::OptimizerKind::adafactor}}) {
#if defined(ZINC_CUDA_EMULATED)
    if (nccl) emulator::set_num_devices(world);
#endif
    if (nccl && !comm::why_no_nccl().empty()) continue;
    if (nccl && static_cast<int>(cuda_devices().size()) < world) continue;
    shape.residual_dropout = graph_of > 1 ? 0.1 : 0.0;
    hub::ModelConfigFile model{.config = shape};
    if (quantized) {
      model.tuning.lora = nn::LoraOptions{.rank = 2, .targets = {"all-linear"}};
      model.tuning.quantize = BlockFormat::nf4;
    }
    train::Config config;
    config.seed = 5;
    config.engine.batch = {.micro_batch = 2, .accumulation = std::max<int64_t>(graph_of, 1)};
    config.engine.cuda_graph = graph_of > 0;
    config.engine.optimizer.kind = rule;
    config.engine.precision.dtype = DType::bf16;
    config.engine.precision.check_overflow = true;
    config.engine.zero.stage = stage;
    config.engine.zero.sub_group_size = 2048;
    config.engine.zero.param_persistence_threshold = 100;  // else all of this model's stay
    config.engine.zero.offload_optimizer = {
        .device = optimizer, .nvme_path = folder.path(), .pipeline_read = true, .ratio = ratio};
    config.engine.zero.offload_param = {.device = parameters,
                                        .nvme_path = folder.path(),
                                        .buffer_count = 2,
                                        .buffer_size = 2048,
                                        .max_in_cpu = 0};
    config.engine.aio.block_size = 4096;
    const plan::Plan plan = plan::make_plan(
        model, config,
        {.world = world, .seq = kSeq, .device = kGpu, .backend = nccl ? "nccl" : "local"});
    std::vector<MemoryReport> reports(static_cast<size_t>(world));
    const Tokens data;
    const comm::ConnectOptions connect{
        .device = kGpu, .spread_devices = nccl, .seed = 5, .num_threads = 1};
    comm::run_local_ranks(world, connect, [&](comm::World& ranks) {
      const auto built = hub::make_model(model);
      zero::Engine engine(*built, config.engine, ranks, {.total_steps = 2});
      data::Loader loader(data, {.micro_batch = 2,
                                 .seq_len = kSeq,
                                 .seed = 5,
                                 .rank = ranks.rank(),
                                 .world = ranks.size()});
      const data::EvaluationSet evaluation(data, {.batch = 2,
                                                  .seq_len = kSeq,
                                                  .max_samples = 4,
                                                  .rank = ranks.rank(),
                                                  .world = ranks.size()});
      const train::CheckpointSaver saver(engine, folder.path());  // takes its buffers
      train::Trainer trainer(engine, loader, &evaluation, {}, nullptr, {.steps = 2},
                             {.save = [&](const std::string&) {
                               engine.read_own(zero::Engine::Own::weights_and_states, {});
                               if (quantized) train::visit_adapter(engine, {});
                             }});
      trainer.run();
      EXPECT_EQ(engine.usage().graphs.launched, graph_of);
      reports[static_cast<size_t>(ranks.rank())] = ranks.context().allocator().report();
    });
    const MemoryReport& real = reports[static_cast<size_t>(plan.fullest.rank)];
    for (const Tier tier : {Tier::device, Tier::pinned_host, Tier::nvme}) {
      EXPECT_EQ(plan.fullest.peaks.at(tier).peak, real.at(tier).peak)
          << "stage " << stage << ", " << name_of(tier) << ", optimizer " << name_of(optimizer)
          << ", parameters " << name_of(parameters);
      const auto at = static_cast<size_t>(tier);
      EXPECT_EQ(plan.fullest.peaks.reserved[at].peak, real.reserved[at].peak) << name_of(tier);
    }
#if defined(ZINC_CUDA_EMULATED)
    emulator::set_num_devices(1);
#endif
  }
}

#if defined(ZINC_CUDA_EMULATED)
// The compute capability of an A100 has no products of 8 bits.
TEST(GpuEngine, EightBits_AreRefusedWhereNoTensorCoresTakeThem) {
  const auto message = [](int major) -> std::string {
    emulator::set_compute_capability(major);
    std::string said;
    comm::run_local_ranks(1, {.device = kGpu, .num_threads = 1}, [&](comm::World& world) {
      const auto model = zero::test::make_tiny_model(Family::gpt2);
      zero::EngineConfig config = config_of({.dtype = DType::bf16}, 0);
      config.fp8 = true;
      try {
        zero::Engine engine(*model, config, world);
      } catch (const ConfigError& error) {
        said = error.what();
      }
    });
    emulator::set_compute_capability(9);
    return said;
  };
  EXPECT_EQ(message(9), "");
  EXPECT_NE(message(8).find("does not multiply 8 bits"), std::string::npos);
}
#endif

}  // namespace gpu_cuda_test
}  // namespace zinc
