// apps/fit_arguments.h: `zinc plan --fit`.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "plan/fit.h"

namespace zinc::apps {

struct FitArguments {
  bool fit = false;
  int64_t global_batch = 0;
  std::string device_memory;  // also without --fit; sizes as in "141GiB", "2TiB/host"
  std::string host_memory;
  std::string nvme_memory;
  std::string nvme_path;
  std::string write;
  std::string explain;
  int max_plans = 400;
};

void add_fit_options(CLI::App& verb, FitArguments& arguments);

// Bytes of the device for one rank. Throws ConfigError if --device-memory, which is given, is no
// positive size.
int64_t device_memory_of(const FitArguments& arguments, int ranks_per_host);

// The parts of a plan's command line that a search takes.
struct FitRun {
  hub::ModelConfigFile model;
  plan::PlanOptions plan;
  train::Overrides flags;
  std::string config;  // path; empty: nothing is fixed
  bool json = false;
};
// The process's exit code: kOutOfMemory where nothing fits.
int run_fit(const FitArguments& arguments, FitRun run);

}  // namespace zinc::apps
