#include "train/config/rank_config.h"

#include <memory>
#include <utility>

#include "train/trace/run_trace.h"

namespace zinc::train {

Config load_config(const std::string& path, comm::World& world, const Overrides& flags) {
  const comm::RankSettings& given = world.given();
  RankDefaults defaults;
  if (given.seed != 0) defaults.seed = given.seed;
  defaults.num_threads = given.num_threads;
  defaults.device_memory_limit = given.device_memory_limit;
  defaults.comm_deadline = given.deadline;
  Config config = load_config(path, world.size(), flags, defaults);
  require_filled(config);

  comm::RankSettings settings;
  settings.seed = config.seed;
  settings.num_threads = config.num_threads;
  settings.device_memory_limit = config.device_memory_limit;
  settings.deadline = config.comm_deadline;
  settings.mesh = config.mesh;
  if (!config.trace.empty() && config.trace == world.settings().trace_file) {
    settings.trace = world.settings().trace;
    settings.trace_file = config.trace;
    settings.drain_trace = world.settings().drain_trace;
  } else if (!config.trace.empty()) {
    const auto trace = RunTrace::open(config.trace, world);
    settings.trace = std::shared_ptr<TraceRecorder>(trace, &trace->recorder());
    settings.trace_file = config.trace;
    settings.drain_trace = [trace] { trace->drain(); };
  }
  world.configure(std::move(settings));
  return config;
}

}  // namespace zinc::train
