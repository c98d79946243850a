// plan/estimator.h: DeepSpeed's estimate of the memory of model states, for comparison.
//
// Formulas of deepspeed.runtime.zero.stage_1_and_2 and .stage3 (0.19). They know neither
// activations nor buffers; zinc's own plan (plan/plan.h) does.
#pragma once

#include <cstdint>
#include <string>

#include "hub/model_config.h"

namespace zinc::plan {

struct ParameterCounts {
  int64_t num_parameters = 0;  // shared ones once
  int64_t largest_layer = 0;   // most parameters of a single module, without its members
};
ParameterCounts count_parameters(const hub::ModelConfigFile& model);

struct EstimatorInput {
  int64_t num_parameters = 0;
  int64_t largest_layer = 0;
  int64_t gpus_per_node = 1;
  int64_t num_nodes = 1;
  double buffer_factor = 1.5;  // DeepSpeed's additional_buffer_factor
};

// The two tables that estimate_zero2_... and estimate_zero3_model_states_mem_needs_all_cold print,
// one after the other. Throws InvalidArgument for counts that are not positive.
std::string deepspeed_estimate(const EstimatorInput& input);

}  // namespace zinc::plan
