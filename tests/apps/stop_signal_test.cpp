// A signal ends `zinc train` after the step under way, with weights that load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>

#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace stop_signal_test {

using testing::HasSubstr;
using testing::IsEmpty;
using train::read_whole_file;

// Far more steps than a test has time for.
const std::vector<std::string> kLong = {"--steps", "1000000"};

void expect_clean_end(const Ended& ended, const TrainingFolder& folder) {
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("stopped by a signal after the step under way"));
  const std::string figures = read_whole_file(folder.out() + "/metrics.jsonl");
  EXPECT_TRUE(figures.ends_with("}\n"));
  const auto lines = std::count(figures.begin(), figures.end(), '\n');
  EXPECT_GE(lines, 3);
  EXPECT_THAT(ended.out, HasSubstr("\n" + std::to_string(lines) + " steps, "));
  EXPECT_THAT(folder.unfinished(), IsEmpty());
  const Ended text =
      run_zinc({"generate", "--model", folder.out() + "/final", "--tokens", "2", "--seed", "1"});
  EXPECT_EQ(text.exit_code, 0) << to_string(text);
}

class StopSignal : public testing::TestWithParam<int> {};

TEST_P(StopSignal, FinishesTheStepAndSaves) {
  const TrainingFolder folder;
  CommandProcess process(folder.train(kLong));
  ASSERT_TRUE(process.wait_for_output(" 3/1000000 |"));
  process.send(GetParam());
  const Ended ended = process.finish();
  EXPECT_THAT(ended.err, IsEmpty());
  expect_clean_end(ended, folder);
}

INSTANTIATE_TEST_SUITE_P(All, StopSignal, testing::Values(SIGUSR1, SIGTERM, SIGINT),
                         [](const auto& info) {
                           return std::string("Signal") + sigabbrev_np(info.param);
                         });

// mpirun passes USR1 on to all ranks, which may be in different steps when it arrives.
TEST(StopSignalOfRanks, EndsThemAtOneStep) {
  if (!have_mpirun()) GTEST_SKIP() << "built without MPI";
  const TrainingFolder folder;
  CommandProcess process(folder.train(kLong), {.ranks = 2});
  ASSERT_TRUE(process.wait_for_output(" 3/1000000 |"));
  process.send(SIGUSR1);
  expect_clean_end(process.finish(), folder);
}

}  // namespace stop_signal_test
}  // namespace zinc::apps
