// comm/mpi/mpi_world.h: the world that an MPI launcher made of this process and its peers. Without
// MPI in the build, a stand-in of the same interface throws (comm/mpi_world_no_mpi.cpp).
#pragma once

#include <chrono>
#include <memory>

#include "comm/transport.h"

namespace zinc::comm {

struct MpiWorld {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // number among the ranks of this host
  int local_size = 1;
  // This rank's number among the ranks of its host that may run on the same processors. A launcher
  // that binds ranks to processors of their own leaves 0 of 1.
  int cpu_rank = 0;
  int cpu_ranks = 1;
  std::shared_ptr<Transport> transport;  // of all ranks; the job ends with its last holder
};

bool built_with_mpi();

// Starts MPI and meets the peers; once in the life of a process. With `shared_memory`, groups whose
// ranks are all on one host exchange through memory. `farewell_deadline`: how long the end of the
// job waits for the peers to get there. Throws CommError.
MpiWorld join_mpi(bool shared_memory, std::chrono::nanoseconds farewell_deadline);

// MPI_Abort; returns where MPI is not running.
void abort_mpi(int exit_code) noexcept;

}  // namespace zinc::comm
