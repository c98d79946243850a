#include "comm/mpi/mpi_world.h"

#include <mpi.h>

#include <utility>

#include "comm/mpi/session.h"
#include "comm/mpi/wire_transport.h"

namespace zinc::comm {

bool built_with_mpi() { return true; }

MpiWorld join_mpi(bool shared_memory, std::chrono::nanoseconds farewell_deadline) {
  std::shared_ptr<MpiSession> session = MpiSession::start();
  session->set_farewell_deadline(farewell_deadline);
  MpiWorld world{.rank = session->rank(),
                 .size = session->size(),
                 .local_rank = session->local_rank(),
                 .local_size = session->local_size(),
                 .cpu_rank = session->cpu_rank(),
                 .cpu_ranks = session->cpu_ranks()};
  world.transport = WireTransport::world(std::move(session), shared_memory);
  return world;
}

void abort_mpi(int exit_code) noexcept {
  int running = 0;
  int over = 0;
  if (MPI_Initialized(&running) != MPI_SUCCESS || running == 0) return;
  if (MPI_Finalized(&over) != MPI_SUCCESS || over != 0) return;
  // Not from the communication thread: the process ends, whatever that thread is doing.
  (void)MPI_Abort(MPI_COMM_WORLD, exit_code);
}

}  // namespace zinc::comm
