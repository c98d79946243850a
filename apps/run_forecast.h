// apps/run_forecast.h: the plan of a run of `zinc train`, and what it says before the run begins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "train/plan/plan.h"

namespace zinc::apps {

// A run as the command line has it.
struct PlannedRun {
  const train::ModelConfigFile& model;
  const train::Config& config;
  int64_t seq = 0;
  std::string device;       // --device
  std::string comm;         // --comm
  std::string hardware;     // --hardware; empty: the machine's own file
  bool save_frozen = true;  // PlanOptions
};

// The backend between ranks that a plan assumes for these values of --device and --comm.
std::string planned_backend(const std::string& device, const std::string& comm);
// The help of --comm.
std::string_view comm_help();

// Tables of the plan, how to get times where it has none, whether it fits.
void print_plan(const train::Plan& plan, const train::ModelConfigFile& model,
                const train::Config& config, int ranks_per_host);

// For --dry-run: prints the plan. Joins no rank.
void print_plan(const PlannedRun& run, const comm::RankInfo& rank);

struct Forecast {
  std::optional<train::StepTime> time;  // of a step, where the machine's speeds are known
  std::vector<std::string> lines;       // about swap files, host memory, and what was chosen
  std::string problem;  // with the hardware file: one that nobody asked for stops no run
  zero::OffloadStep offload_step = zero::OffloadStep::automatic;  // the choice; automatic: none
};
// On rank 0; empty elsewhere. Throws what a plan throws where a hardware file was asked for.
Forecast forecast(const PlannedRun& run, comm::World& world);

// Rank 0's choice, on every rank. Collective.
zero::OffloadStep share_choice(const Forecast& forecast, comm::World& world);

}  // namespace zinc::apps
