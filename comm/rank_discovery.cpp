#include "comm/rank_discovery.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/error.h"

namespace zinc::comm {
namespace {

constexpr int kLargest = 1'000'000;

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const { return !text(name).empty(); }
  std::string_view text(const char* name) const {
    const char* value = environment_(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
  }
  std::optional<int> number(const char* name) const {
    const std::string_view value = text(name);
    if (value.empty()) return std::nullopt;
    int parsed = -1;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error != std::errc() || end != value.data() + value.size() || parsed < 0 ||
        parsed > kLargest) {
      throw CommError(str("the environment variable ", name, " is '", value,
                          "', which is not a number from 0 to ", kLargest,
                          ": unset it, or start the program by its launcher"));
    }
    return parsed;
  }

 private:
  const Environment& environment_;
};

// A launcher's four variables.
struct Names {
  const char* source;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr Names kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kHydra{"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

void check_range(int value, int end, const char* name, const char* end_name) {
  if (value < end) return;
  throw CommError(str("the environment variables ", name, "=", value, " and ", end_name, "=", end,
                      " contradict each other: ranks are counted from 0; unset both, or "
                      "start the program by its launcher"));
}

void complete_local(RankInfo& info, std::optional<int> local_rank, std::optional<int> local_size,
                    const Names& names) {
  info.local_size = local_size.value_or(info.size);
  info.local_rank =
      local_rank.value_or(local_size ? info.rank % std::max(1, *local_size) : info.rank);
  check_range(info.local_rank, info.local_size, names.local_rank, names.local_size);
  check_range(info.local_size - 1, info.size, names.local_size, names.size);
}

std::optional<RankInfo> find(const Variables& variables, const Names& names) {
  const bool has_rank = variables.has(names.rank);
  if (has_rank != variables.has(names.size)) {
    throw CommError(str("the environment variable ", has_rank ? names.rank : names.size,
                        " is set, but ", has_rank ? names.size : names.rank,
                        " is not: set both, as ", names.source, " does, or unset ",
                        has_rank ? names.rank : names.size));
  }
  if (!has_rank) return std::nullopt;
  RankInfo info;
  info.rank = *variables.number(names.rank);
  info.size = *variables.number(names.size);
  info.source = names.source;
  check_range(info.rank, info.size, names.rank, names.size);
  complete_local(info, variables.number(names.local_rank), variables.number(names.local_size),
                 names);
  return info;
}

// srun marks the processes of a step; sbatch and salloc only describe the allocation.
std::optional<RankInfo> find_slurm_step(const Variables& variables) {
  if (!variables.has("SLURM_STEP_ID") || !variables.has("SLURM_PROCID")) return std::nullopt;
  constexpr Names kStep{"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                        "SLURM_STEP_TASKS_PER_NODE"};
  const auto size = variables.number(kStep.size);
  RankInfo info;
  info.rank = *variables.number(kStep.rank);
  info.size = size ? *size : variables.number("SLURM_NTASKS").value_or(1);
  info.source = kStep.source;
  check_range(info.rank, info.size, kStep.rank, kStep.size);
  const int node = variables.number("SLURM_NODEID").value_or(0);
  const int tasks = tasks_of_node(std::string(variables.text(kStep.local_size)), node);
  complete_local(info, variables.number(kStep.local_rank),
                 tasks > 0 ? std::optional<int>(tasks) : std::nullopt, kStep);
  return info;
}

void check_same(const RankInfo& a, const Names& names_a, const RankInfo& b, const Names& names_b) {
  if (a.rank == b.rank && a.size == b.size) return;
  throw CommError(str("two launchers say different things: ", names_a.rank, "=", a.rank, " ",
                      names_a.size, "=", a.size, " and ", names_b.rank, "=", b.rank, " ",
                      names_b.size, "=", b.size, ": start the ranks by one launcher, or unset ",
                      names_a.rank, " and ", names_a.size));
}

}  // namespace

int tasks_of_node(const std::string& list, int node) {
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    int tasks = 0;
    int nodes = 1;
    const char* end = item.data() + item.size();
    const char* at = std::from_chars(item.data(), end, tasks).ptr;
    if (end - at > 3 && at[0] == '(' && at[1] == 'x') std::from_chars(at + 2, end, nodes);
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return 0;
}

Discovery discover(const Environment& environment) {
  const Variables variables(environment);
  const std::optional<RankInfo> torchrun = find(variables, kTorchrun);
  std::optional<RankInfo> mpirun = find(variables, kOpenMpi);
  const Names* mpirun_names = &kOpenMpi;
  const std::optional<RankInfo> slurm = find_slurm_step(variables);
  if (!mpirun && !slurm) {
    mpirun = find(variables, kHydra);
    mpirun_names = &kHydra;
  }
  Discovery found;
  found.mpi_can_start = mpirun.has_value() || slurm.has_value() || variables.has("PMIX_RANK");
  if (torchrun) {
    // mpirun inside of a Slurm step and torchrun started once a node leave the outer launcher's
    // variables behind; they matter only where MPI is to be started with them.
    if (mpirun && mpirun->size > 1) check_same(*torchrun, kTorchrun, *mpirun, *mpirun_names);
    found.info = *torchrun;
  } else if (mpirun) {
    found.info = *mpirun;
  } else if (slurm) {
    found.info = *slurm;
  }
  return found;
}

}  // namespace zinc::comm
