#include "apps/run_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "apps/hardware_file.h"
#include "apps/machine.h"
#include "apps/plan_verdict.h"
#include "apps/rank_failure.h"
#include "apps/swap_preflight.h"
#include "comm/device_collectives.h"
#include "comm/gather_values.h"
#include "core/error.h"

namespace zinc::apps {
namespace {

// `backend`: of the world at hand; empty: what --comm asks for.
plan::PlanOptions plan_options(const PlannedRun& run, const comm::RankInfo& rank,
                               std::string_view backend, int threads,
                               std::optional<plan::Hardware> hardware) {
  const Device device = parse_device(run.device);
  const int ranks_per_host = std::max(1, rank.local_size);
  return {.world = rank.size,
          .seq = run.seq,
          .fields = run.fields,
          .num_threads = threads,
          .device = device,
          .backend = rank.size == 1    ? "single"
                     : backend.empty() ? planned_backend(run.device, run.comm)
                                       : std::string(backend),
          .save_frozen = run.save_frozen,
          .ranks_per_host = ranks_per_host,
          .hardware = std::move(hardware),
          .device_room = room_for(device, ranks_per_host).bytes};
}

constexpr double kFilledShare = 0.9;  // of memory without a given limit

}  // namespace

plan::FillLimit fill_limit(const train::Config& config, Device device, int ranks_per_host,
                           std::optional<int64_t> given) {
  if (!given) given = config.device_memory_limit;
  if (given) return {.device = *given};
  const int64_t room = room_for(device, ranks_per_host).bytes;
  if (room > 0) {
    return {.device = static_cast<int64_t>(kFilledShare * static_cast<double>(room)),
            .one_pool = device.is_cpu()};
  }
  throw ConfigError(fmt::format(
      "\"auto\" of {} fills the device's memory, and no device is here to ask how much that is: "
      "set zinc.device_memory_limit, or give zinc plan --device-memory",
      fmt::join(config.open, ", ")));
}

std::variant<std::string, int> fill_memory(const PlannedRun& run, comm::World& world,
                                           train::Config& config) {
  if (config.open.empty()) return std::string();
  const Device device = parse_device(run.device);
  plan::FillLimit limit;
  const auto look = [&] {
    limit = fill_limit(config, device, std::max(1, world.info().local_size));
  };
  if (const auto code = fails_on_a_rank(world, look)) return *code;
  const double mine = static_cast<double>(limit.device);
  const std::vector<double> all = comm::gather_values(world, {&mine, 1});
  limit.device = static_cast<int64_t>(std::ranges::min(all));
  std::string line;
  const auto plan = [&] {
    if (!world.is_main()) return;
    std::optional<plan::Hardware> hardware;
    try {
      hardware = find_hardware(run.hardware, device.kind);
    } catch (const Error&) {
      if (!run.hardware.empty()) throw;  // a file that nobody asked for stops no run
    }
    plan::MemoryFill filled =
        plan::fill_memory(run.model, config,
                          plan_options(run, world.info(), world.communicator().backend(),
                                       world.context().num_threads(), std::move(hardware)),
                          limit);
    config = std::move(filled.config);
    line = std::move(filled.line);
  };
  if (const auto code = fails_on_a_rank(world, plan)) return *code;
  const std::vector<double> values = plan::filled_values(config);
  const std::vector<double> every = comm::gather_values(world, values);
  plan::take_filled_values(std::span(every).first(values.size()), config);
  return line;
}

std::string planned_backend(const std::string& device, const std::string& comm) {
  return comm::planned_backend(comm::parse_device_collectives(comm), parse_device(device),
                               device == "cuda");
}

std::string_view comm_help() {
  return "Between GPUs: auto (default: nccl where each rank has its own), mpi or nccl";
}

train::Config filled(const hub::ModelConfigFile& model, const train::Config& config,
                     const plan::PlanOptions& options, std::optional<int64_t> device_memory,
                     bool prints) {
  if (config.open.empty()) return config;
  const plan::MemoryFill found =
      plan::fill_memory(model, config, options,
                        fill_limit(config, options.device, options.ranks_per_host, device_memory));
  if (prints && !found.line.empty()) fmt::print("{}\n", found.line);
  return found.config;
}

void print_plan(const plan::Plan& plan, const hub::ModelConfigFile& model,
                const train::Config& config, int ranks_per_host) {
  train::Config chosen = config;
  if (plan.offload_choice) chosen.engine.offload_step = plan.offload_choice->step;
  fmt::print("{}{}\n{}", plan::describe(plan), plan.options.hardware ? "" : how_to_get_hardware(),
             verdict(plan, model, chosen, room_for(plan.options.device, ranks_per_host)));
}

void print_plan(const PlannedRun& run, const comm::RankInfo& rank) {
  const int threads =
      run.config.num_threads > 0 ? run.config.num_threads : threads_per_rank(rank.local_size);
  const plan::PlanOptions options = plan_options(
      run, rank, "", threads, find_hardware(run.hardware, parse_device(run.device).kind));
  const train::Config config = filled(run.model, run.config, options, {});
  const plan::Plan plan = plan::make_plan(run.model, config, options);
  print_plan(plan, run.model, config, rank.local_size);
}

Forecast forecast(const PlannedRun& run, comm::World& world) {
  Forecast result;
  if (!world.is_main()) return result;
  const zero::EngineConfig& engine = run.config.engine;
  std::optional<plan::Hardware> hardware;
  const auto attempt = [&](const auto& body) {  // a run needs no forecast unless it asked for one
    try {
      body();
    } catch (const Error& error) {
      if (!run.hardware.empty()) throw;
      result.problem = error.what();
    }
  };
  attempt([&] { hardware = find_hardware(run.hardware, parse_device(run.device).kind); });
  const bool timed = hardware.has_value();
  const std::optional<SwapDisk> disk = swap_disk(engine, hardware);
  if (timed && disk) hardware->disk = disk->speed;
  if (!timed && !swaps(engine) && !offloads(engine)) return result;
  attempt([&] {
    const plan::Plan made =
        plan::make_plan(run.model, run.config,
                        plan_options(run, world.info(), world.communicator().backend(),
                                     world.context().num_threads(), hardware));
    if (timed) result.time = made.fullest.time;
    if (made.offload_choice) {
      result.offload_step = made.offload_choice->step;
      result.lines.push_back(plan::describe(*made.offload_choice));
    }
    if (swaps(engine)) result.lines.push_back(expected_swap(made, disk));
    if (offloads(engine)) result.lines.push_back(expected_copies(made));
  });
  return result;
}

zero::OffloadStep share_choice(const Forecast& forecast, comm::World& world) {
  const auto mine = static_cast<double>(forecast.offload_step);
  return static_cast<zero::OffloadStep>(
      static_cast<int>(comm::gather_values(world, {&mine, 1}).front()));
}

}  // namespace zinc::apps
