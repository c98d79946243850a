// Jobs of three MPI ranks in which something goes wrong: who is named, how long it takes, and with
// which code mpirun ends. Each job is this program, started three times by mpirun.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/comm/mpi/leak_checker.h"

namespace zinc::comm::testing {
namespace mpi_faults_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  double seconds = 0;
  std::map<int, std::string> lines;  // by rank
  std::string output;
};

Outcome run_job(const std::string& trouble, const std::string& way) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  // Open MPI runs as root only if it is told so.
  std::string environment = "env ";
  for (const std::string& setting : leak_checker_environment()) {
    environment += "\"" + setting + "\" ";
  }
  const std::string folder =
      ::testing::TempDir() + str("zinc_", trouble, "_", way, "_", ::getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const std::string command =
      environment +
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 1 100 "
      "mpirun --oversubscribe --bind-to none -np 3 '" +
      self + "' --fault-rank " + trouble + " " + way + " '" + folder + "' 2>&1 </dev/null";
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) outcome.output += buffer.data();
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::filesystem::remove_all(folder);
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) {
    int rank = 0;
    int end = 0;
    if (std::sscanf(line.c_str(), "RANK %d: %n", &rank, &end) == 1 && end > 0) {
      outcome.lines[rank] = line.substr(static_cast<size_t>(end));
    }
  }
  return outcome;
}

// Whether a job ended long before the minute after which its ranks give each other up. An ordinary
// end takes about a second, mpirun's own grace for ranks that left without a word another two; on a
// busy machine as much longer as a job without a fault.
void expect_a_quick_end(const Outcome& outcome, const std::string& way, double most_seconds = 12) {
  if (outcome.seconds >= most_seconds) {
    most_seconds = std::clamp(6 * run_job("none", way).seconds, most_seconds, 50.0);
  }
  EXPECT_LT(outcome.seconds, most_seconds) << outcome.output;
}

class MpiFaults : public ::testing::TestWithParam<const char*> {
 protected:
  // The code that every rank returned comes out of mpirun.
  Outcome run(const std::string& trouble, int exit_code, double most_seconds = 12) {
    Outcome outcome = run_job(trouble, GetParam());
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
    expect_a_quick_end(outcome, GetParam(), most_seconds);
    return outcome;
  }
};

TEST_P(MpiFaults, None_EndsWell) {
  const Outcome outcome = run("none", 0);
  EXPECT_EQ(outcome.lines, (std::map<int, std::string>{{0, "fine"}, {1, "fine"}, {2, "fine"}}))
      << outcome.output;
}

TEST_P(MpiFaults, SleepingRank_IsNamed) {
  const Outcome outcome = run("sleep", 72);
  ASSERT_GE(outcome.lines.size(), 2u) << outcome.output;
  for (const auto& [rank, text] : outcome.lines) {
    EXPECT_THAT(text, AllOf(HasSubstr("all_gather"), HasSubstr("waiting for rank 1")));
    EXPECT_THAT(text, AllOf(Not(HasSubstr("rank 0 and")), Not(HasSubstr("and rank"))));
  }
}

TEST_P(MpiFaults, SlowRankWithinTheDeadline_IsNoFault) {
  EXPECT_EQ(run("sleep_within_the_deadline", 0, 30).lines.size(), 3u);
}

TEST_P(MpiFaults, StoppedRank_IsNamed) {
  const Outcome outcome = run("stop", 72);
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(outcome.lines.contains(rank)) << outcome.output;
    EXPECT_THAT(outcome.lines.at(rank),
                AllOf(HasSubstr("all_gather #2 (500000 x f32)"), HasSubstr("waiting for rank 2")));
  }
}

TEST_P(MpiFaults, RankStoppedInTheMiddle_IsNamed) {
  const Outcome outcome = run("stop_in_the_middle", 72);
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(outcome.lines.contains(rank)) << outcome.output;
    EXPECT_THAT(outcome.lines.at(rank), HasSubstr("waiting for rank 2"));
  }
}

TEST_P(MpiFaults, Abort_WakesAll) {
  const Outcome outcome = run("abort", 72);
  ASSERT_EQ(outcome.lines.size(), 3u) << outcome.output;
  for (const auto& [rank, text] : outcome.lines) {
    EXPECT_THAT(text, HasSubstr("rank 0: the operator said so"));
  }
}

TEST_P(MpiFaults, AbortInAGroup_ReachesTheWorld) {
  const Outcome outcome = run("abort_in_a_group", 72);
  ASSERT_EQ(outcome.lines.size(), 3u) << outcome.output;
  for (const auto& [rank, text] : outcome.lines) EXPECT_THAT(text, HasSubstr("rank 0: enough"));
}

TEST_P(MpiFaults, SizesThatDiffer_FailOnAllRanks) {
  const Outcome outcome = run("mismatch", 72);
  ASSERT_EQ(outcome.lines.size(), 3u) << outcome.output;
  for (const auto& [rank, text] : outcome.lines) {
    EXPECT_THAT(text, AllOf(HasSubstr("ranks 0 and 2: all_gather #2 (200000 x f32)"),
                            HasSubstr("rank 1: all_gather #2 (300000 x f32)")));
  }
}

TEST_P(MpiFaults, CountThatDiffers_FailsOnTheReceiverAndReachesAll) {
  const Outcome outcome = run("wrong_count", 72);
  ASSERT_EQ(outcome.lines.size(), 3u) << outcome.output;
  for (const auto& [rank, text] : outcome.lines) {
    EXPECT_THAT(text, HasSubstr("rank 0 sends 20 bytes to rank 1, which expects 16")) << rank;
  }
}

TEST_P(MpiFaults, RankThatThrows_TellsItsPeers) {
  const Outcome outcome = run_job("throw", GetParam());
  expect_a_quick_end(outcome, GetParam());
  EXPECT_TRUE(outcome.exit_code == 65 || outcome.exit_code == 72) << outcome.output;
  EXPECT_EQ(outcome.lines.at(1), "shard 3 is broken");
  EXPECT_THAT(outcome.lines.at(0), HasSubstr("rank 1: ends because of an exception"));
}

TEST_P(MpiFaults, KilledRank_EndsTheJob) { run("kill", 128 + 9); }

TEST_P(MpiFaults, AbortJob_EndsAllWithItsCode) { run("abort_job", 71); }

TEST_P(MpiFaults, ErrorOfOneRank_IsSaidByThatRank) {
  const Outcome outcome = run("error_of_one", 78, 20);
  EXPECT_EQ(outcome.lines, (std::map<int, std::string>{{2, "one failed"}})) << outcome.output;
}

TEST_P(MpiFaults, ErrorOfAllRanks_IsSaidOnce) {
  const Outcome outcome = run("error_of_all", 65);
  EXPECT_EQ(outcome.lines, (std::map<int, std::string>{{0, "all failed"}})) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, MpiFaults, ::testing::Values("shared", "wire"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace mpi_faults_test
}  // namespace zinc::comm::testing
