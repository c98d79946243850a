// The tests of comm/, and the ranks that mpi_faults_test.cpp starts: the same program.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/mpi/fault_ranks.h"

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--fault-rank") {
    return zinc::comm::testing::run_fault_rank(argv[2], argv[3], argv[4]);
  }
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
