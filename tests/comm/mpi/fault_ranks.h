// tests/comm/mpi/fault_ranks.h: one rank of a job in which something goes wrong.
#pragma once

#include <string>

namespace zinc::comm::testing {

// Joins the job that mpirun started, lets the trouble named `trouble` happen and prints one line,
// "RANK <r>: <its CommError, or fine>". Returns the exit code. `way`: "shared" or "wire". In
// `folder` the ranks of the job tell each other that they have printed their lines; it is empty at
// first.
int run_fault_rank(const std::string& trouble, const std::string& way, const std::string& folder);

}  // namespace zinc::comm::testing
