// bench/train_bench.h: training steps of a preset, beside the GEMM ceiling on the model's own
// shapes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "core/dtype.h"
#include "hub/tuning.h"
#include "zero/engine_config.h"

namespace zinc::bench {

struct TrainBenchOptions {
  std::string preset = "gpt2-124m";
  DType dtype = DType::bf16;
  int64_t batch = 4;
  int64_t seq = 512;
  int64_t steps = 5;  // timed; one more warms up
  int64_t recompute_every = 0;
  int64_t accumulation = 1;  // micro-batches per step
  hub::TuningOptions tuning{};
  // One engine and one model per ZeRO stage and determinism; their steps take turns, so that their
  // times compare.
  std::vector<int> stages{0};
  std::vector<zero::Determinism> determinism{zero::Determinism::run};
};

struct StageSteps {
  int stage = 0;
  zero::Determinism determinism = zero::Determinism::run;
  std::vector<double> step_seconds;
  double median_step_seconds = 0.0;
  double tokens_per_second = 0.0;  // of the median step, all ranks
  double final_loss = 0.0;
};

struct TrainBenchResult {
  std::vector<StageSteps> stages;  // in the order of the options: by stage, then determinism
  double flops_per_token = 0.0;    // model FLOP: see nn::Model::flops_per_token
  double achieved_flops = 0.0;     // of this rank, first stage
  // The rate of the vendor library for this model's products of forward and backward, weighted by
  // their flops, measured before and after the steps in this process.
  double gemm_ceiling_flops = 0.0;
  // Achieved / ceiling; 0 where there is no vendor library, or a part is trained.
  double ratio = 0.0;
  int64_t peak_bytes = 0;  // device tier, all engines together
};

struct TrainBenchHooks {
  std::function<void()> before_step;  // before each step, the untimed ones too
  std::function<void()> in_step;      // at the end of each step, within its time
  // After each timed step.
  std::function<void(const StageSteps& candidate, double seconds)> after_step;
};

// Random tokens; AdamW.
TrainBenchResult run_train_bench(comm::World& world, const TrainBenchOptions& options,
                                 const TrainBenchHooks& hooks = {});
std::string json_of(const TrainBenchOptions& options, const TrainBenchResult& result);

}  // namespace zinc::bench
