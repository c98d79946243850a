// plan/fill.h: keys that are "auto" because their values follow from the device's memory.
//
// Note [Filled memory]
// Four keys trade memory of the device for time:
//
//   activation_checkpointing.number_checkpoints     which blocks are not computed twice
//   zero_optimization.offload_optimizer.ratio       which share of the states stays on the device
//   zinc.resident_memory                            weights that stay gathered through a step
//   zero_optimization.stage3_max_live_parameters    and within a micro-batch
//
// An "auto" becomes the most that fits, by plans (plan/plan.h): so the bytes that a run reserves,
// segments of its allocators included, stay within the limit. One key is filled after the other, in
// the order above; where step times can be modelled, in that order of the open keys with which the
// step is shortest. The result is plain numbers, which all ranks share; no bit of a result depends
// on them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hub/model_config.h"
#include "plan/plan.h"
#include "train/config/config.h"

namespace zinc::plan {

inline constexpr const char* kCheckpointsKey = "activation_checkpointing.number_checkpoints";
inline constexpr const char* kRecomputeBlocksKey = "zinc.recompute_blocks";
inline constexpr const char* kRatioKey = "zero_optimization.offload_optimizer.ratio";
inline constexpr const char* kResidentKey = "zinc.resident_memory";
inline constexpr const char* kMaxLiveKey = "zero_optimization.stage3_max_live_parameters";

// The bytes that a rank may reserve: the smallest limit of all ranks, > 0.
struct FillLimit {
  int64_t device = 0;
  bool one_pool = false;  // the limit is for device and host memory together
};

struct MemoryFill {
  train::Config config;  // without open keys
  int64_t device_bytes = 0;
  int num_plans = 0;
  std::string line;  // for the user; empty: nothing was open
};

// `config` with its open keys found; an offload_step that is open is chosen on the way. Throws
// OutOfMemory where nothing fits, ConfigError where a key cannot be found beside the others.
MemoryFill fill_memory(const hub::ModelConfigFile& model, const train::Config& config,
                       const PlanOptions& options, const FillLimit& limit);

// The values that fill_memory() may have changed, as numbers that one rank sends to another.
std::vector<double> filled_values(const train::Config& config);
void take_filled_values(std::span<const double> values, train::Config& config);

}  // namespace zinc::plan
