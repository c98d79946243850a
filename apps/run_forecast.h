// apps/run_forecast.h: the plan of a run of `zinc train`, and the lines that it prints before the
// run begins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "comm/world.h"
#include "plan/fill.h"
#include "plan/plan.h"

namespace zinc::apps {

// A run as the command line has it.
struct PlannedRun {
  const hub::ModelConfigFile& model;
  const train::Config& config;
  int64_t seq = 0;
  std::string device;          // --device
  std::string comm;            // --comm
  std::string hardware;        // --hardware; empty: the machine's own file
  bool save_frozen = true;     // PlanOptions
  data::BatchFields fields{};  // of the data
};

// The backend between ranks that a plan assumes for these values of --device and --comm.
std::string planned_backend(const std::string& device, const std::string& comm);
// The help of --comm.
std::string_view comm_help();

// The configuration with values for its open keys, for a plan; prints the values.
train::Config filled(const hub::ModelConfigFile& model, const train::Config& config,
                     const plan::PlanOptions& options, std::optional<int64_t> device_memory,
                     bool prints = true);

// Prints the tables of the plan, how to get times if it has none, and whether it fits.
void print_plan(const plan::Plan& plan, const hub::ModelConfigFile& model,
                const train::Config& config, int ranks_per_host);

// For --dry-run: prints the plan. Joins no rank.
void print_plan(const PlannedRun& run, const comm::RankInfo& rank);

// The bytes of the device that the open keys of a configuration may fill (plan/fill.h): `given`,
// from --device-memory, or zinc.device_memory_limit. Without both, nine tenths of the memory that
// the verdict compares with, because the program and libraries need some; on a CPU this includes
// host memory for offload. Throws ConfigError if nothing is known.
plan::FillLimit fill_limit(const train::Config& config, Device device, int ranks_per_host,
                           std::optional<int64_t> given = {});

// Finds the keys of `config` that are open, which is the run's: on rank 0, for the smallest limit
// of all ranks, with the same result on every one. Gives the line that says so, empty where nothing
// was open, or the code to end with where a rank failed, which was said then. Collective.
std::variant<std::string, int> fill_memory(const PlannedRun& run, comm::World& world,
                                           train::Config& config);

struct Forecast {
  std::optional<plan::StepTime> time;  // of a step, if the machine's speeds are known
  std::vector<std::string> lines;      // about swap files, host memory, and choices
  std::string problem;  // with the hardware file: one that nobody asked for stops no run
  zero::OffloadStep offload_step = zero::OffloadStep::automatic;  // the choice; automatic: none
};
// Call on rank 0; empty elsewhere. Throws as a plan does, if a hardware file was asked for.
Forecast forecast(const PlannedRun& run, comm::World& world);

// Rank 0's choice, on every rank. Collective.
zero::OffloadStep share_choice(const Forecast& forecast, comm::World& world);

}  // namespace zinc::apps
