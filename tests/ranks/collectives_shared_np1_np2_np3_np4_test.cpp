// Ranks of one host, through shared memory.
#include "tests/ranks/mpi_checks.h"

namespace zinc::comm::testing {

static ::testing::Environment* const job = ::testing::AddGlobalTestEnvironment(new Job(true));

}  // namespace zinc::comm::testing
