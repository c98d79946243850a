// plan/computing_plan.h: the bytes of a model that is asked and not trained, before it is loaded.
//
// As a plan of a training (plan/plan.h) it is a run on a meta device: an engine that only computes
// (zero::EngineOptions::computes_only) evaluates two batches, and writes texts if that is asked
// for. The peak is the peak that a real engine takes from zinc's allocators, to the byte. There are
// no gradients and no optimizer states in it.
#pragma once

#include <cstdint>
#include <string>

#include "hub/model_config.h"
#include "plan/plan.h"
#include "train/config/config.h"

namespace zinc::plan {

// Texts that a rank writes side by side with generate::write_texts(), the most likely tokens.
struct PlannedTexts {
  int64_t count = 0;          // 0: none
  int64_t prompt_tokens = 1;  // of each prompt
  int64_t new_tokens = 0;     // of each text
};

struct ComputingPlan {
  PlanOptions options;
  // peaks, at_peak, peak_moment; `step` is the traffic of the second evaluation. No other member is
  // set.
  RankPlan rank;
  int64_t num_parameters = 0;
};

// `config` is for options.world ranks. Its batch.micro_batch is the number of sequences of a batch;
// its settings of steps have no effect. Options of steps, times and saves have none either. Throws
// what the engine would throw.
ComputingPlan make_computing_plan(const hub::ModelConfigFile& model, const train::Config& config,
                                  const PlanOptions& options, const PlannedTexts& texts = {});

// For people and for programs.
std::string describe(const ComputingPlan& plan);
std::string json_of(const ComputingPlan& plan);

}  // namespace zinc::plan
