#include "comm/mpi/mpi_world.h"
#include "core/error.h"

namespace zinc::comm {

bool built_with_mpi() { return false; }

MpiWorld join_mpi(bool, std::chrono::nanoseconds) {
  throw CommError(
      "this zinc was built without MPI, which connects the ranks of several processes: install the "
      "Debian packages libopenmpi-dev and openmpi-bin and configure again, or start one process");
}

void abort_mpi(int) noexcept {}

}  // namespace zinc::comm
