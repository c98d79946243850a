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

namespace zinc::bench {

struct TrainBenchOptions {
  std::string preset = "gpt2-124m";
  DType dtype = DType::bf16;
  int64_t batch = 4;
  int64_t seq = 512;
  int64_t steps = 5;  // timed; one more warms up
  int64_t recompute_every = 0;
};

struct TrainBenchResult {
  std::vector<double> step_seconds;
  double median_step_seconds = 0.0;
  double tokens_per_second = 0.0;  // of the median step, this rank
  double flops_per_token = 0.0;    // model FLOP: see nn::Model::flops_per_token
  double achieved_flops = 0.0;     // flops_per_token x tokens_per_second
  // What the vendor library reaches on the products of forward and backward of this model, weighted
  // by their flops, measured before and after the steps in this process.
  double gemm_ceiling_flops = 0.0;
  double ratio = 0.0;  // achieved / ceiling; 0 where there is no vendor library
  double final_loss = 0.0;
  int64_t peak_bytes = 0;  // device tier
};

// Random tokens; AdamW; ZeRO stage 0. `on_step` is told the seconds of each timed step.
TrainBenchResult run_train_bench(comm::World& world, const TrainBenchOptions& options,
                                 const std::function<void(double)>& on_step = {});
std::string json_of(const TrainBenchOptions& options, const TrainBenchResult& result);

}  // namespace zinc::bench
