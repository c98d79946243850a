// comm/rank_discovery.h: which rank a launcher's environment says that this process is.
#pragma once

#include <functional>
#include <string>

#include "comm/world.h"

namespace zinc::comm {

// The value of a variable; null where it is not set. An empty value counts as not set.
using Environment = std::function<const char*(const char* name)>;

struct Discovery {
  RankInfo info;
  // The launcher passes on what MPI needs to find the peers.
  bool mpi_can_start = false;
};

// Reads the first of these that is set: RANK and WORLD_SIZE (torchrun and similar launchers);
// OMPI_COMM_WORLD_* or PMI_* (mpirun); the variables of a Slurm step. Otherwise a world of one.
// Throws CommError that names the variables and the cure, if they are incomplete, not numbers, or
// contradict each other.
//
// local_rank and local_size come from the launcher. If it does not give them, all ranks count as
// being on this host.
Discovery discover(const Environment& environment);

// Ranks of node `node` in Slurm's list of tasks per node, "2(x3),1"; 0 where it says nothing.
int tasks_of_node(const std::string& list, int node);

}  // namespace zinc::comm
