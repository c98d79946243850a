#include "apps/run_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/hardware_file.h"
#include "apps/machine.h"
#include "apps/plan_verdict.h"
#include "apps/swap_preflight.h"
#include "comm/device_collectives.h"
#include "core/error.h"
#include "zero/gather_values.h"

namespace zinc::apps {
namespace {

// `backend`: of the world at hand; empty: what --comm asks for.
train::PlanOptions plan_options(const PlannedRun& run, const comm::RankInfo& rank,
                                std::string_view backend, int threads,
                                std::optional<train::Hardware> hardware) {
  const Device device = parse_device(run.device);
  const int ranks_per_host = std::max(1, rank.local_size);
  return {.world = rank.size,
          .seq = run.seq,
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

}  // namespace

std::string planned_backend(const std::string& device, const std::string& comm) {
  return comm::planned_backend(comm::parse_device_collectives(comm), parse_device(device),
                               device == "cuda");
}

std::string_view comm_help() {
  return "Between GPUs: auto (default: nccl where each rank has its own), mpi or nccl";
}

void print_plan(const train::Plan& plan, const train::ModelConfigFile& model,
                const train::Config& config, int ranks_per_host) {
  train::Config chosen = config;
  if (plan.offload_choice) chosen.engine.offload_step = plan.offload_choice->step;
  fmt::print("{}{}\n{}", train::describe(plan), plan.options.hardware ? "" : how_to_get_hardware(),
             verdict(plan, model, chosen, room_for(plan.options.device, ranks_per_host)));
}

void print_plan(const PlannedRun& run, const comm::RankInfo& rank) {
  const int threads =
      run.config.num_threads > 0 ? run.config.num_threads : threads_per_rank(rank.local_size);
  const train::Plan plan =
      train::make_plan(run.model, run.config,
                       plan_options(run, rank, "", threads,
                                    find_hardware(run.hardware, parse_device(run.device).kind)));
  print_plan(plan, run.model, run.config, rank.local_size);
}

Forecast forecast(const PlannedRun& run, comm::World& world) {
  Forecast result;
  if (!world.is_main()) return result;
  const zero::EngineConfig& engine = run.config.engine;
  std::optional<train::Hardware> hardware;
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
    const train::Plan made =
        train::make_plan(run.model, run.config,
                         plan_options(run, world.info(), world.communicator().backend(),
                                      world.context().num_threads(), hardware));
    if (timed) result.time = made.fullest.time;
    if (made.offload_choice) {
      result.offload_step = made.offload_choice->step;
      result.lines.push_back(train::describe(*made.offload_choice));
    }
    if (swaps(engine)) result.lines.push_back(expected_swap(made, disk));
    if (offloads(engine)) result.lines.push_back(expected_copies(made));
  });
  return result;
}

zero::OffloadStep share_choice(const Forecast& forecast, comm::World& world) {
  const auto mine = static_cast<double>(forecast.offload_step);
  return static_cast<zero::OffloadStep>(
      static_cast<int>(zero::gather_values(world, {&mine, 1}).front()));
}

}  // namespace zinc::apps
