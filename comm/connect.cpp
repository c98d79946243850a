#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/host_communicator.h"
#include "comm/mpi/mpi_world.h"
#include "comm/rank_discovery.h"
#include "comm/single/single.h"
#include "comm/world.h"
#include "core/error.h"

namespace zinc::comm {
namespace {

Discovery discover_here() {
  return discover([](const char* name) -> const char* { return std::getenv(name); });
}

std::shared_ptr<Heartbeat> make_heartbeat(const ConnectOptions& options, const RankInfo& info) {
  if (options.heartbeat_directory.empty()) return nullptr;
  return std::make_shared<Heartbeat>(options.heartbeat_directory, info.rank, info.size);
}

void check_mpi_can_serve(const Discovery& found) {
  if (!built_with_mpi()) {
    throw CommError(str("a world of ", found.info.size, " ranks (", found.info.source,
                        ") needs MPI, which this zinc was built without: install the Debian "
                        "packages libopenmpi-dev and openmpi-bin and configure again, or start "
                        "one process"));
  }
  if (found.mpi_can_start) return;
  throw CommError(str("RANK and WORLD_SIZE name a world of ", found.info.size,
                      " ranks, but nothing can connect them: zinc's ranks meet through MPI. "
                      "Start them with mpirun -np ",
                      found.info.size,
                      " (or srun --mpi=pmix), or unset RANK and WORLD_SIZE to "
                      "run alone"));
}

void check_same_world(const RankInfo& info, const MpiWorld& world) {
  if (world.rank == info.rank && world.size == info.size) return;
  throw CommError(str("the environment (", info.source, ") says rank ", info.rank, " of ",
                      info.size, ", MPI says rank ", world.rank, " of ", world.size,
                      info.source == "slurm"
                          ? ": start with srun --mpi=pmix, or run mpirun inside the allocation"
                          : ": start the ranks with mpirun alone"));
}

World make_world(const ConnectOptions& options, RankInfo info, std::string_view backend,
                 std::unique_ptr<Communicator> communicator, const CpuShare& share) {
  communicator->set_deadline(options.deadline);
  const char* said = std::getenv("OMP_NUM_THREADS");
  int num_cpus = threads_in(said == nullptr ? "" : said);
  if (num_cpus == 0) {
    num_cpus = threads_of(static_cast<int>(share.cpus.size()), info.local_size);
  } else if (options.num_threads == 0) {
    info.threads_from = "OMP_NUM_THREADS";
  }
  std::unique_ptr<CpuBinding> binding;
  if (options.bind_threads && share.exclusive && backend != "single") {
    binding = std::make_unique<CpuBinding>(share.cpus);
  }
  auto context = std::make_unique<Context>(context_options(options, info.local_rank, num_cpus));
  return World(std::move(info), std::move(communicator), std::move(context), std::move(binding),
               options.device_collectives,
               std::make_unique<ContextRecipe>(ContextRecipe{options, num_cpus}));
}

}  // namespace

RankInfo discover_rank() { return discover_here().info; }

World connect(ConnectOptions options) {
  const Discovery found = discover_here();
  RankInfo info = found.info;
  const std::vector<int> cpus = allowed_cpus();
  if (info.size == 1) {
    return make_world(options, info, "single", make_single(make_heartbeat(options, info)),
                      share_of(cpus, 0, 1));
  }
  check_mpi_can_serve(found);
  // At the end of a job one rank may still write its last files.
  MpiWorld world = join_mpi(options.shared_memory, 6 * options.deadline);
  check_same_world(info, world);
  info.local_rank = world.local_rank;
  info.local_size = world.local_size;
  auto communicator = std::make_unique<HostCommunicator>("mpi", std::move(world.transport),
                                                         make_heartbeat(options, info));
  return make_world(options, info, "mpi", std::move(communicator),
                    share_of(cpus, world.cpu_rank, world.cpu_ranks));
}

void let_others_speak(const std::exception_ptr& error) noexcept {
  try {
    const RankInfo info = discover_here().info;
    if (info.size == 1) return;
    std::chrono::seconds patience{info.rank == 0 ? 0 : 1};
    try {
      std::rethrow_exception(error);
    } catch (const PeerFailed&) {
      patience = std::chrono::seconds(10);
    } catch (...) {
    }
    std::this_thread::sleep_for(patience);
  } catch (...) {  // the environment is what is wrong: there is nobody to wait for
  }
}

void abort_job(int exit_code) noexcept { abort_mpi(exit_code); }

}  // namespace zinc::comm
