// Ranks under `zinc launch` that end well, badly, or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "comm/heartbeat.h"
#include "tests/apps/command_process.h"
#include "tests/apps/patience.h"
#include "tests/apps/training_folder.h"
#include "tests/core/await.h"
#include "train/trace/trace_summary.h"

namespace zinc::apps {
namespace launch_test {

using testing::HasSubstr;
using testing::Not;

class Launch : public testing::Test {
 protected:
  void SetUp() override {
    if (!have_mpirun()) GTEST_SKIP() << "built without MPI";
    // zinc launch tells mpirun by itself that root starts it.
    ::unsetenv("OMPI_ALLOW_RUN_AS_ROOT");
    ::unsetenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    share_states();
  }

  // A deadline that no rank misses unless it is stopped for good.
  void share_states(std::chrono::seconds deadline = std::chrono::seconds(60)) {
    folder_.write("ds.json", str(R"({"train_micro_batch_size_per_gpu": 2, "steps_per_print": 1,
                      "zero_optimization": {"stage": 3},
                      "zinc": {"comm_deadline_seconds": )",
                                 deadline.count(), R"(, "trace": ")", trace(), R"("}})"));
  }

  // Puts both ranks along this axis of the mesh.
  void share(const char* axis, std::chrono::seconds deadline = std::chrono::seconds(60)) {
    folder_.write("ds.json",
                  str(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
                             "steps_per_print": 1, "zinc": {"comm_deadline_seconds": )",
                      deadline.count(), R"(, "mesh": {")", axis, R"(": 2}}})"));
  }

  std::string trace() const { return folder_ / "trace.json"; }
  std::string heartbeats() const { return folder_ / "heartbeats"; }

  std::vector<std::string> words(const std::vector<std::string>& changes = {}) const {
    std::vector<std::string> all = {"launch",    "--num_gpus",   "2",          "--mpirun",
                                    ZINC_MPIRUN, "--heartbeats", heartbeats(), command_path()};
    for (const std::string& word : folder_.train(changes)) all.push_back(word);
    return all;
  }

  // Never 0, which kill() takes for this test's own group: a rank may be writing its file just now,
  // so two readings in a row have to say the same.
  pid_t process_of(int rank) const {
    pid_t process = 0;
    await([&] {
      const pid_t before = process;
      process = process_in(comm::read_heartbeat(heartbeats(), rank));
      return process > 0 && process == before;
    });
    return process;
  }
  static pid_t process_in(const std::string& heartbeat) {
    const size_t at = heartbeat.find("process ");
    if (at == std::string::npos) return 0;
    return static_cast<pid_t>(std::strtol(heartbeat.c_str() + at + 8, nullptr, 10));
  }

  // A long run in its third step.
  CommandProcess& start() {
    process_.emplace(words({"--steps", "1000000", "--force"}));
    if (!process_->wait_for_output(" 3/1000000 |")) {
      throw std::runtime_error("the run ended before its third step: " +
                               to_string(process_->finish()));
    }
    return *process_;
  }

  TrainingFolder folder_;
  std::optional<CommandProcess> process_;
};

TEST_F(Launch, RanksThatEndWell) {
  const Ended ended = run_zinc(words());
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("2 steps"));
  const train::TraceSummary summary = train::summarize_trace(trace());
  EXPECT_TRUE(summary.complete);
  ASSERT_EQ(summary.steps.size(), 4u);
  for (const train::StepSummary& step : summary.steps) {
    EXPECT_EQ(step.prefetch_hit_rate(), 1.0);
    EXPECT_GT(step.reduced_bytes, 0);
  }
  EXPECT_EQ(run_zinc({"trace", "summary", trace(), "--json"}).exit_code, 0);
}

TEST_F(Launch, AKilledRankEndsTheJobBeforeTheDeadline) {
  CommandProcess& process = start();
  const auto begin = Clock::now();
  ASSERT_EQ(::kill(process_of(1), SIGKILL), 0);
  const Ended ended = process.finish();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(50));
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("\n  rank 0 of 2, process "));
  EXPECT_THAT(ended.err, HasSubstr("\n  rank 1 of 2, process "));
  // The traces that the ranks wrote until then can be read.
  EXPECT_FALSE(train::summarize_trace(trace()).complete);
  EXPECT_EQ(run_zinc({"trace", "summary", trace()}).exit_code, 0);
}

class LaunchPace : public Launch {};

TEST_F(LaunchPace, AKilledRankEndsTheJobWithinThreeSeconds) {
  CommandProcess& process = start();
  const auto begin = Clock::now();
  ASSERT_EQ(::kill(process_of(1), SIGKILL), 0);
  const Ended ended = process.finish();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(3));
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << to_string(ended);
}

TEST_F(Launch, AStoppedRankIsNamedAfterTheDeadline) {
  share_states(std::chrono::seconds(5));
  CommandProcess& process = start();
  ASSERT_EQ(::kill(process_of(1), SIGSTOP), 0);
  const Ended ended = process.finish();
  EXPECT_EQ(ended.exit_code, 72) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("no progress for 5 s: waiting for rank 1"));
  EXPECT_THAT(ended.err, Not(HasSubstr("waiting for rank 0")));
}

TEST_F(LaunchPace, AStoppedRankEndsTheJobFiveSecondsAfterTheDeadline) {
  constexpr std::chrono::seconds kDeadline{2};
  share_states(kDeadline);
  CommandProcess& process = start();
  const auto begin = Clock::now();
  ASSERT_EQ(::kill(process_of(1), SIGSTOP), 0);
  const Ended ended = process.finish();
  const auto took = Clock::now() - begin;
  EXPECT_EQ(ended.exit_code, 72) << to_string(ended);
  EXPECT_GE(took, kDeadline);
  EXPECT_LT(took, kDeadline + std::chrono::seconds(5));
}

TEST_F(Launch, ADeadRankOfAPipelineIsNamedByItsCoordinates) {
  share("pipe");
  folder_.write("model.json", R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 16,
                                  "n_embd": 32, "n_layer": 2, "n_head": 2})");
  CommandProcess& process = start();
  ASSERT_EQ(::kill(process_of(1), SIGKILL), 0);
  const Ended ended = process.finish();
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("\n  rank 0 (data 0, pipe 0) of 2, process "));
  EXPECT_THAT(ended.err, HasSubstr("\n  rank 1 (data 0, pipe 1) of 2, process "));
}

TEST_F(Launch, AStoppedRankThatSharesLayersIsNamedByItsCoordinates) {
  share("tensor", std::chrono::seconds(5));
  CommandProcess& process = start();
  ASSERT_EQ(::kill(process_of(1), SIGSTOP), 0);
  const Ended ended = process.finish();
  EXPECT_EQ(ended.exit_code, 72) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("waiting for rank 1"));
  EXPECT_THAT(ended.err, HasSubstr("rank 1 (data 0, tensor 1)"));
}

TEST_F(Launch, ASlowRankRaisesNoAlarm) {
  constexpr std::chrono::seconds kDeadline{12};
  share_states(kDeadline);
  CommandProcess& process = start();
  ASSERT_EQ(::kill(process_of(1), SIGSTOP), 0);
  std::this_thread::sleep_for(kDeadline / 2);
  ASSERT_EQ(::kill(process_of(1), SIGCONT), 0);
  process.send(SIGTERM);  // to zinc launch: the ranks get USR1, finish their step and save
  const Ended ended = process.finish();
  EXPECT_EQ(ended.exit_code, 75) << to_string(ended);
  EXPECT_THAT(ended.err, Not(HasSubstr("no progress")));
  EXPECT_THAT(ended.out, HasSubstr("stopped by a signal after the step under way"));
  EXPECT_TRUE(train::summarize_trace(trace()).complete);
}

TEST_F(Launch, AnInterruptIsASignalToFinishToo) {
  CommandProcess& process = start();
  process.send(SIGINT);
  const Ended ended = process.finish();
  EXPECT_EQ(ended.exit_code, 75) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("stopped by a signal after the step under way"));
}

// A shell signals its job and the processes of it; a terminal that is closed sends HUP.
TEST_F(Launch, SignalsAtOnce_AreOneRequestToEndWithTheStep) {
  in_less_than_the_patience([&] {
    CommandProcess& process = start();
    const auto first = Clock::now();
    for (const int signal : {SIGHUP, SIGTERM}) process.send(signal);
    process.send_and_wait(SIGTERM);
    const auto took = Clock::now() - first;
    const Ended ended = process.finish();
    if (took >= kPatience) return took;
    EXPECT_EQ(ended.exit_code, 75) << to_string(ended);
    EXPECT_THAT(ended.out, HasSubstr("stopped by a signal after the step under way"));
    EXPECT_TRUE(std::filesystem::exists(folder_.out() + "/final/model.safetensors"));
    return took;
  });
}

TEST_F(Launch, DryRunPrintsTheCommandAndStartsNothing) {
  const Ended ended = run_zinc({"launch", "--dry-run", "--include", "localhost:0,2",
                                "--master_port", "4000", "zinc", "train", "--out", "a b"});
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_EQ(ended.out, std::string("mpirun --bind-to none ") +
                           (::geteuid() == 0 ? "--allow-run-as-root " : "") +
                           "-np 2 --host localhost:2 -x CUDA_VISIBLE_DEVICES=0,2 "
                           "-x MASTER_ADDR=127.0.0.1 -x MASTER_PORT=4000 zinc train --out 'a b'\n");
}

TEST_F(Launch, TheProgramMayStandBehindTwoDashes) {
  const Ended ended =
      run_zinc({"launch", "--dry-run", "--num_gpus", "2", "--", "zinc", "train", "--", "--out"});
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_THAT(ended.out, testing::EndsWith(" zinc train -- --out\n"));
}

TEST_F(Launch, MisuseHasItsExitCode) {
  EXPECT_EQ(run_zinc({"launch"}).exit_code, 64);
  const Ended misspelt = run_zinc({"launch", "--rnks", "2", "zinc", "train", "--config", "a"});
  EXPECT_EQ(misspelt.exit_code, 64);
  EXPECT_THAT(misspelt.err, HasSubstr("did you mean --ranks?"));
  EXPECT_THAT(misspelt.err, Not(HasSubstr("'train'"))) << "it is the program's word";
  EXPECT_EQ(run_zinc({"--bogus", "launch", "--dry-run", "zinc"}).exit_code, 64);
  EXPECT_EQ(run_zinc({"launch", "--include", "a", "--exclude", "b", "zinc"}).exit_code, 78);
  EXPECT_EQ(run_zinc({"launch", "--hostfile", folder_ / "none", "zinc"}).exit_code, 65);
}

// Rank 1 is started with other files than rank 0, by mpirun itself.
class Disagreement : public Launch {
 protected:
  void SetUp() override {
    Launch::SetUp();
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  Ended run(const std::vector<std::string>& changes) const {
    std::vector<std::string> all = {ZINC_MPIRUN, "--oversubscribe", "--bind-to", "none"};
    for (int rank = 0; rank < 2; ++rank) {
      if (rank == 1) all.emplace_back(":");
      all.insert(all.end(), {"-np", "1", command_path()});
      for (const std::string& word :
           folder_.train(rank == 0 ? std::vector<std::string>{} : changes)) {
        all.push_back(word);
      }
    }
    return CommandProcess::of_program(all).finish();
  }

  void expect(const std::vector<std::string>& changes, const std::string& part) const {
    const Ended ended = run(changes);
    EXPECT_EQ(ended.exit_code, 78) << to_string(ended);
    EXPECT_THAT(ended.err, HasSubstr("the " + part + " of rank 1 differs from that of rank 0"));
    EXPECT_THAT(folder_.tree(), Not(testing::Contains("run"))) << "training had begun";
  }
};

TEST_F(Disagreement, ConfigurationIsNamed) {
  expect({"--config", folder_.write("other.json", R"({"train_micro_batch_size_per_gpu": 2,
                                                     "zero_optimization": {"stage": 2}})")},
         "configuration");
}

TEST_F(Disagreement, ModelIsNamed) {
  std::string model(kTinyGpt2);
  model.replace(model.find("\"n_layer\": 1"), 12, "\"n_layer\": 2");
  expect({"--model", folder_.write("other.json", model)}, "model");
}

TEST_F(Disagreement, DataIsNamed) {
  std::string text = files::read_whole_file(folder_ / "text.txt");
  text[2000] = text[2000] == 'x' ? 'y' : 'x';
  expect({"--data", folder_.write("other.txt", text)}, "data");
}

TEST_F(Disagreement, CommandLineIsNamed) {
  const Ended ended = run({"--steps", "3"});
  EXPECT_EQ(ended.exit_code, 78) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("of rank 1 differs from that of rank 0"));
}

}  // namespace launch_test
}  // namespace zinc::apps
