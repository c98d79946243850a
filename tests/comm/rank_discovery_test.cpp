#include "comm/rank_discovery.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace zinc::comm {
namespace rank_discovery_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Discovery discover_in(const Variables& variables) {
  return discover([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect_place(const RankInfo& info, int rank, int size, int local_rank, int local_size,
                  const std::string& source) {
  EXPECT_EQ(info.rank, rank);
  EXPECT_EQ(info.size, size);
  EXPECT_EQ(info.local_rank, local_rank);
  EXPECT_EQ(info.local_size, local_size);
  EXPECT_EQ(info.source, source);
}

std::string error_in(const Variables& variables) {
  try {
    discover_in(variables);
  } catch (const CommError& error) {
    return error.what();
  }
  return "no error";
}

const Variables kTorchrun{
    {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}};
const Variables kMpirun{{"OMPI_COMM_WORLD_RANK", "2"},
                        {"OMPI_COMM_WORLD_SIZE", "6"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
const Variables kSlurmStep{{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "9"},
                           {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "7"},
                           {"SLURM_PROCID", "6"},  {"SLURM_LOCALID", "0"},
                           {"SLURM_NODEID", "3"},  {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};

Variables operator+(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

TEST(RankDiscovery, NothingSet_IsAWorldOfOne) {
  const Discovery found = discover_in({});
  expect_place(found.info, 0, 1, 0, 1, "single");
  EXPECT_FALSE(found.mpi_can_start);
}

TEST(RankDiscovery, EveryLauncher_IsRead) {
  expect_place(discover_in(kTorchrun).info, 5, 8, 1, 4, "torchrun");
  EXPECT_FALSE(discover_in(kTorchrun).mpi_can_start);
  expect_place(discover_in(kMpirun).info, 2, 6, 2, 3, "mpirun");
  EXPECT_TRUE(discover_in(kMpirun).mpi_can_start);
  expect_place(discover_in(kSlurmStep).info, 6, 7, 0, 1, "slurm");
  EXPECT_TRUE(discover_in(kSlurmStep).mpi_can_start);
  expect_place(discover_in({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).info, 1, 2, 1, 2, "mpirun");
}

TEST(RankDiscovery, TorchrunWithoutLocalVariables_TakesOneHost) {
  expect_place(discover_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).info, 1, 2, 1, 2, "torchrun");
  expect_place(discover_in({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}}).info, 5,
               8, 1, 4, "torchrun");
}

// sbatch and salloc describe an allocation; only srun starts ranks in it.
TEST(RankDiscovery, SlurmAllocationWithoutAStep_IsAWorldOfOne) {
  Variables variables = kSlurmStep;
  variables.erase("SLURM_STEP_ID");
  expect_place(discover_in(variables).info, 0, 1, 0, 1, "single");
}

TEST(RankDiscovery, SeveralLaunchers_TheExplicitOneWins) {
  expect_place(discover_in(kMpirun + kSlurmStep).info, 2, 6, 2, 3, "mpirun");
  const Variables exported{{"RANK", "2"}, {"WORLD_SIZE", "6"}};
  const Discovery found = discover_in(exported + kMpirun);
  expect_place(found.info, 2, 6, 2, 6, "torchrun");
  EXPECT_TRUE(found.mpi_can_start);
  // torchrun started once a node by srun: the step counts the nodes.
  expect_place(discover_in(kTorchrun + kSlurmStep).info, 5, 8, 1, 4, "torchrun");
}

TEST(RankDiscovery, Contradictions_NameVariablesAndCure) {
  EXPECT_THAT(error_in(kTorchrun + kMpirun),
              AllOf(HasSubstr("RANK=5 WORLD_SIZE=8"), HasSubstr("OMPI_COMM_WORLD_RANK=2"),
                    HasSubstr("unset RANK and WORLD_SIZE")));
  EXPECT_THAT(error_in({{"RANK", "1"}}),
              AllOf(HasSubstr("RANK is set, but WORLD_SIZE is not"), HasSubstr("unset RANK")));
  EXPECT_THAT(error_in({{"WORLD_SIZE", "2"}}), HasSubstr("WORLD_SIZE is set, but RANK is not"));
  EXPECT_THAT(error_in({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=2 and WORLD_SIZE=2"));
  EXPECT_THAT(error_in(kTorchrun + Variables{{"LOCAL_RANK", "4"}}),
              HasSubstr("LOCAL_RANK=4 and LOCAL_WORLD_SIZE=4"));
  EXPECT_THAT(error_in({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "0"}}),
              HasSubstr("contradict"));
  for (const char* bad : {"x", "-1", "1x", "99999999999", " 1"}) {
    EXPECT_THAT(error_in({{"RANK", bad}, {"WORLD_SIZE", "2"}}), HasSubstr("not a number")) << bad;
  }
}

TEST(RankDiscovery, SlurmTasksPerNode_AreUnfolded) {
  EXPECT_EQ(tasks_of_node("2(x3),1", 0), 2);
  EXPECT_EQ(tasks_of_node("2(x3),1", 2), 2);
  EXPECT_EQ(tasks_of_node("2(x3),1", 3), 1);
  EXPECT_EQ(tasks_of_node("4,3(x2)", 2), 3);
  EXPECT_EQ(tasks_of_node("4", 1), 0);
  EXPECT_EQ(tasks_of_node("", 0), 0);
}

}  // namespace rank_discovery_test
}  // namespace zinc::comm
