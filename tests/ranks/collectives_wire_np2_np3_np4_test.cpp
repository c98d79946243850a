// Ranks as if on different hosts, through MPI messages.
#include "tests/ranks/mpi_checks.h"

namespace zinc::comm::testing {

static ::testing::Environment* const job = ::testing::AddGlobalTestEnvironment(new Job(false));

}  // namespace zinc::comm::testing
