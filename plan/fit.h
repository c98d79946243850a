// plan/fit.h: the configuration that fits: a search by exact memory and modelled time.
//
// Every answer was planned (plan/plan.h): its bytes are those that a run takes. Candidates are left
// out for the reasons of Note [Bounds of the search] in fit.cpp: they cannot fit, a fitting
// candidate with less saving is better, or they cannot be faster than the answers. If the number of
// plans ends the search early, the result says so, and by how much an unplanned candidate might be
// faster.
//
// A step with more than four micro-batches is planned with four: the middle ones repeat, so memory
// is the same, and time grows by the time of a middle one (RankPlan::shorter,
// tests/plan/fit_test.cpp). Vertical steps are planned whole. The plan of a candidate that does not
// fit ends as soon as that is known.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "files/json/value.h"
#include "plan/fit_space.h"
#include "plan/plan.h"

namespace zinc::plan {

// Bytes that a rank may reserve.
struct FitLimits {
  int64_t device = 0;             // > 0
  std::optional<int64_t> host{};  // absent: no offload to host memory; see `one_pool`
  std::optional<int64_t> nvme{};  // absent: no offload to NVMe
  // The device's limit is for device and host memory together: for a CPU rank whose host memory has
  // no limit.
  bool one_pool = false;
  int64_t at(Tier tier) const;  // the largest integer if there is no limit
};

struct FitRequest {
  hub::ModelConfigFile model;
  // world, seq, device, backend, threads, hardware of the run; no program.
  PlanOptions plan;
  FitLimits limits;
  // `host` follows from the limits, `nvme_path` is needed with limits.nvme, `world` and
  // `ranks_per_host` are the plan's; `meshes` needs hardware.
  FitSpaceOptions space;
  int num_answers = 5;
  int max_plans = 400;  // candidates that are planned at most, apart from filling memory up
  int threads = 1;  // threads that plan side by side; the result does not depend on their number
};

// The score of a candidate; less is better. It is the seconds of a step. Without a hardware file,
// these numbers in lexicographic order: bytes of the disk, whether it recomputes, bytes from and to
// host memory, bytes between ranks, micro-batches.
using FitScore = std::array<double, 5>;

struct FittedConfig {
  FitCandidate candidate;
  std::string words;
  files::json::Value file;  // DeepSpeed's JSON for `zinc train --config`
  FitScore score{};
  std::array<int64_t, kNumTiers> reserved{};  // of a rank
  std::optional<StepTime> time;               // of a step with all its micro-batches
  std::string no_time;  // the reason why there is no time although there is hardware
  // Share of the rate of products at which a rank computes nn::Model::flops_per_token.
  double mfu = 0.0;
  int64_t tokens_per_step = 0;   // of all ranks
  std::string binds;             // "device 97.1 %": the tier that is fullest
  std::vector<std::string> why;  // for the first answer: the purpose of each saving
};

// The nearest candidate, where no candidate fits.
struct FitShortfall {
  std::string words;
  std::array<int64_t, kNumTiers> reserved{};
  std::vector<Tier> beyond;  // tiers whose limit it exceeds
  std::string largest;       // labels at the moment of the device's peak, the largest first
};

struct FitResult {
  std::vector<FittedConfig> best;  // the fastest first; empty: nothing fits
  std::optional<FitShortfall> nothing;
  int64_t num_candidates = 0;
  int64_t num_planned = 0;
  // False: max_plans ended the search; `gap`: share of the first answer's time that a candidate
  // which was not planned might save.
  bool is_complete = true;
  std::optional<double> gap;
  bool is_timed = false;
  FitLimits limits;
  int64_t global_batch = 0;
};

// Throws ConfigError as FitSpace does, and for limits that are not positive.
FitResult fit(const FitRequest& request);

// The costs of one key: the first answer with every other value that the key may have, next to the
// answer's value.
struct KeyCost {
  std::string value;    // JSON
  bool is_own = false;  // the answer's value
  bool fits = false;
  std::string problem;  // why a run refuses it; empty: it does not
  // Savings of the answer that this value rules out, and that the figures are without: "states in
  // host memory".
  std::string without;
  std::array<int64_t, kNumTiers> reserved{};
  std::optional<double> step_seconds;
};
struct KeyCosts {
  std::string path;
  std::vector<KeyCost> rows;
};
// `key`: a path of the configuration, or its last word where one key of the answer has it. Throws
// ConfigError for a key that does not exist, or whose values are no choices, numbers or flags.
KeyCosts explain_key(const FitRequest& request, const FittedConfig& answer, std::string_view key);

// For people and for programs.
std::string describe(const FitResult& result, const FitRequest& request);
std::string describe(const KeyCosts& costs);
std::string json_of(const FitResult& result, const FitRequest& request,
                    const std::optional<KeyCosts>& costs);

}  // namespace zinc::plan
