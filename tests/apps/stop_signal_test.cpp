// A signal ends `zinc train` after the step under way, with weights that load and a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "apps/stop_signal.h"
#include "core/exit_codes.h"
#include "tests/apps/command_process.h"
#include "tests/apps/patience.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace stop_signal_test {

using files::read_whole_file;
using testing::HasSubstr;
using testing::IsEmpty;

// Far more steps than a test has time for.
const std::vector<std::string> kLong = {"--steps", "1000000"};

// Figures of every step, and weights that load; the number of steps.
int64_t expect_whole_run(const Ended& ended, const TrainingFolder& folder,
                         ExitCode code = kPreempted) {
  EXPECT_EQ(ended.exit_code, code) << to_string(ended);
  const std::string figures = read_whole_file(folder.out() + "/metrics.jsonl");
  EXPECT_TRUE(figures.ends_with("}\n"));
  EXPECT_THAT(folder.unfinished(), IsEmpty());
  const Ended text =
      run_zinc({"generate", "--model", folder.out() + "/final", "--tokens", "2", "--seed", "1"});
  EXPECT_EQ(text.exit_code, 0) << to_string(text);
  return std::count(figures.begin(), figures.end(), '\n');
}

void expect_clean_end(const Ended& ended, const TrainingFolder& folder) {
  EXPECT_THAT(ended.out, HasSubstr("stopped by a signal after the step under way"));
  const int64_t steps = expect_whole_run(ended, folder);
  EXPECT_GE(steps, 3);
  EXPECT_THAT(ended.out, HasSubstr("; this goes on: zinc train --config "));
  EXPECT_EQ(run_zinc({"checkpoint", "verify", folder.out()}).exit_code, kDone);
  EXPECT_THAT(ended.out, HasSubstr("\n" + std::to_string(steps) + " steps, "));
}

// A run of steps that end long after a test has.
std::vector<std::string> endless_step(const TrainingFolder& folder) {
  folder.write("ds.json",
               R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1000000})");
  return folder.train();
}

TEST(Mpirun, WhatATermDoes_IsSaidWhereNobodyPassesItOn) {
  using Variables = std::map<std::string, std::string>;
  const auto said = [](const Variables& variables) {
    return notice_of_mpirun([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_THAT(said({}), IsEmpty());
  EXPECT_THAT(said({{"OMPI_COMM_WORLD_SIZE", "2"}}),
              testing::AllOf(HasSubstr("kills the ranks 2 s later"), HasSubstr("USR1"),
                             HasSubstr("zinc launch")));
  EXPECT_THAT(said({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_MCA_odls_base_sigkill_timeout", "30"}}),
              HasSubstr("60 s later"));
  EXPECT_THAT(said({{"OMPI_COMM_WORLD_SIZE", "2"}, {"ZINC_HEARTBEATS", "/tmp"}}), IsEmpty());
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

// A batch system says when the job ends: the run stops a minute before.
TEST(EndOfAllocation, ThatIsNear_EndsTheRunWithACheckpoint) {
  const auto train = [](const TrainingFolder& folder, int64_t seconds_left,
                        const std::vector<std::string>& more) {
    std::vector<std::string> words{
        "env", "SLURM_JOB_END_TIME=" + std::to_string(std::time(nullptr) + seconds_left),
        command_path()};
    const std::vector<std::string> command = folder.train(more);
    words.insert(words.end(), command.begin(), command.end());
    return CommandProcess::of_program(words).finish();
  };
  const TrainingFolder folder;
  const Ended ended = train(folder, 62, kLong);
  EXPECT_GE(expect_whole_run(ended, folder), 1);
  EXPECT_THAT(ended.out, HasSubstr("stopped before the batch system ends the job"));
  EXPECT_THAT(ended.out, HasSubstr("; this goes on: zinc train --config "));
  EXPECT_EQ(run_zinc({"checkpoint", "verify", folder.out()}).exit_code, kDone);
  const TrainingFolder other;
  EXPECT_EQ(expect_whole_run(train(other, 3600, {"--steps", "3"}), other, kDone), 3);
}

INSTANTIATE_TEST_SUITE_P(All, StopSignal, testing::Values(SIGUSR1, SIGTERM, SIGINT, SIGHUP),
                         [](const auto& info) {
                           return std::string("Signal") + sigabbrev_np(info.param);
                         });

TEST(SecondSignal, AtOnce_IsTheFirstOnceMore) {
  in_less_than_the_patience([] {
    const TrainingFolder folder;
    CommandProcess process(folder.train(kLong));
    EXPECT_TRUE(process.wait_for_output(" 3/1000000 |"));
    const auto first = Clock::now();
    for (const int signal : {SIGTERM, SIGCONT, SIGTERM, SIGINT}) process.send(signal);
    process.send_and_wait(SIGTERM);
    const auto took = Clock::now() - first;
    const Ended ended = process.finish();
    if (took < kPatience) expect_clean_end(ended, folder);
    return took;
  });
}

// `timeout` signals the process, and then its group with the process in it. An ALRM ends its wait.
TEST(SecondSignal, ByTimeout_LosesNoWeights) {
  const TrainingFolder folder;
  std::vector<std::string> words = {"timeout", "-s", "TERM", "1000", command_path()};
  for (const std::string& word : folder.train(kLong)) words.push_back(word);
  CommandProcess process = CommandProcess::of_program(words);
  ASSERT_TRUE(process.wait_for_output(" 3/1000000 |"));
  process.send(SIGALRM);
  const Ended ended = process.finish();
  EXPECT_EQ(ended.exit_code, 124) << to_string(ended);  // timeout's own
  EXPECT_THAT(ended.out, HasSubstr("stopped by a signal after the step under way"));
  EXPECT_TRUE(std::filesystem::exists(folder.out() + "/final/model.safetensors"));
}

// The process has dealt with one signal when it has taken the next.
TEST(SecondSignal, AfterTwoSeconds_EndsTheProcess) {
  in_less_than_the_patience([] {
    const TrainingFolder folder;
    CommandProcess process(endless_step(folder));
    EXPECT_TRUE(process.wait_for_output("\n  out "));
    const auto first = Clock::now();
    process.send_and_wait(SIGTERM);
    process.send_and_wait(SIGTERM);
    const auto first_is_known = Clock::now();
    std::this_thread::sleep_until(first + kPatience / 2);
    process.send_and_wait(SIGTERM);
    const bool runs_on = process.send_and_wait(SIGTERM);
    const auto took = Clock::now() - first;
    if (took >= kPatience) return took;
    EXPECT_TRUE(runs_on);
    std::this_thread::sleep_until(first_is_known + kPatience);
    process.send_and_wait(SIGTERM);
    const Ended ended = process.finish();
    EXPECT_EQ(ended.signal, SIGTERM) << to_string(ended);
    return took;
  });
}

// zinc train | head
TEST(ClosedOutput, EndsTheRunWithItsWeights) {
  const TrainingFolder folder;
  CommandProcess process(folder.train(kLong));
  ASSERT_TRUE(process.wait_for_output(" 3/1000000 |"));
  process.close_output();
  const Ended ended = process.finish();
  EXPECT_THAT(ended.err, IsEmpty());
  EXPECT_GE(expect_whole_run(ended, folder), 3);
}

CommandProcess in_a_shell(const std::string& before, const std::vector<std::string>& arguments,
                          const std::string& after) {
  std::string script = before + " exec '" + command_path() + "'";
  for (const std::string& word : arguments) script += " '" + word + "'";
  return CommandProcess::of_program({"sh", "-c", script + after});
}

TEST(FullOutput, IsDropped_AndTheRunGoesOn) {
  const TrainingFolder folder;
  const Ended ended = in_a_shell("", folder.train({"--steps", "40"}), " >/dev/full").finish();
  EXPECT_THAT(ended.err, IsEmpty());
  EXPECT_EQ(expect_whole_run(ended, folder, kDone), 40);
}

TEST(IgnoredHangup, OfNohupIsIgnoredFurther) {
  const TrainingFolder folder;
  CommandProcess process = in_a_shell("trap '' HUP;", folder.train(kLong), "");
  ASSERT_TRUE(process.wait_for_output(" 3/1000000 |"));
  process.send(SIGHUP);
  ASSERT_TRUE(process.wait_for_output(" 500/1000000 |"));
  process.send(SIGTERM);
  expect_clean_end(process.finish(), folder);
}

// Far more windows than a test has time for.
TEST(StopInAnEvaluation, EndsItAtOnce_WithWeights) {
  const TrainingFolder folder;
  std::string text;
  while (text.size() < 40'000'000) text += "And the evening and the morning were the first day.\n";
  CommandProcess process(
      folder.train({"--steps", "3", "--validation", folder.write("long.txt", text),
                    "--eval-batches", "1000000"}));
  ASSERT_TRUE(process.wait_for_output("\nevaluation "));
  EXPECT_TRUE(std::filesystem::exists(folder.out() + "/final/model.safetensors"));
  process.send(SIGTERM);
  const Ended ended = process.finish();
  EXPECT_THAT(ended.out,
              testing::ContainsRegex("evaluation [0-9]+/1000000 batches . [0-9]+ s . ETA"));
  EXPECT_THAT(ended.out, HasSubstr("\nthe last evaluation was stopped by a signal\n"));
  EXPECT_EQ(expect_whole_run(ended, folder, kDone), 3);
}

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
