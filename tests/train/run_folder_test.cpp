#include "train/metrics/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

#include "core/error.h"
#include "tests/files/scratch_folder.h"

namespace zinc::train {
namespace run_folder_test {

using testing::ElementsAre;

int errno_of(auto&& body) {
  try {
    body();
  } catch (const IoError& error) {
    return error.error_number();
  }
  return 0;
}

// A run that has trained; ended by the destructor.
RunFolder kept(const std::string& path, bool force) {
  RunFolder run = RunFolder::create(path, force);
  run.keep();
  return run;
}

TEST(RunFolder, NewOrEmptyFolder_IsTaken) {
  const files::ScratchFolder folder;
  const RunFolder deep = RunFolder::create(folder / "a/b/c/", false);
  EXPECT_EQ(deep.path(), folder / "a/b/c");
  EXPECT_EQ(deep.file("metrics.jsonl"), folder / "a/b/c/metrics.jsonl");
  EXPECT_THAT(files::names_in(deep.path()), ElementsAre(".zinc-run"));
  std::filesystem::create_directory(folder / "empty");
  EXPECT_THAT(files::names_in(kept(folder / "empty", false).path()), ElementsAre(".zinc-run"));
  EXPECT_THAT(folder.names(), ElementsAre("a", "empty"));
}

TEST(RunFolder, ExistingRun_IsReplacedByForceOnly) {
  const files::ScratchFolder folder;
  kept(folder / "run", false);
  folder.write("run/metrics.jsonl", "old");
  EXPECT_EQ(files::message_of<IoError>([&] { RunFolder::create(folder / "run", false); }),
            "cannot create run folder '" + (folder / "run") +
                "': File exists (errno 17); it holds a run; --resume auto goes on with it, --force "
                "replaces it (in a program: .resume = \"auto\", .force = true); or choose another "
                "folder");
  EXPECT_EQ(files::read_whole_file(folder / "run/metrics.jsonl"), "old");
  const RunFolder run = kept(folder / "run", true);
  EXPECT_THAT(files::names_in(run.path()), ElementsAre(".zinc-run"));
  EXPECT_THAT(folder.names(), ElementsAre("run"));
}

// mpirun leaves such a folder when it kills the ranks of a start that fails on one of them.
TEST(RunFolder, RunThatWasKilledBeforeItsFirstStep_IsReplaced) {
  const files::ScratchFolder folder;
  const auto killed = [&](const std::string& name) {
    const RunFolder run = RunFolder::create(folder / "live", false);
    std::filesystem::copy(folder / "live", folder / name);
    folder.write(name + "/config.resolved.json", "{}");
    folder.write(name + "/metrics.jsonl", "");
  };
  killed("run");
  const RunFolder run = kept(folder / "run", false);
  EXPECT_THAT(files::names_in(run.path()), ElementsAre(".zinc-run"));
  // Whatever its mark says, what a step left is never replaced.
  killed("other");
  folder.write("other/metrics.jsonl", "{}");
  EXPECT_EQ(errno_of([&] { RunFolder::create(folder / "other", false); }), EEXIST);
  killed("third");
  folder.write("third/checkpoints/step-000001/manifest.json", "{}");
  EXPECT_EQ(errno_of([&] { RunFolder::create(folder / "third", false); }), EEXIST);
}

TEST(RunFolder, OldRun_StaysUntilTheNewOneIsKept) {
  const files::ScratchFolder folder;
  kept(folder / "run", false);
  folder.write("run/final/weights", "old");
  {
    const RunFolder run = RunFolder::create(folder / "run", true);
    EXPECT_TRUE(run.replaces());
    EXPECT_EQ(run.path(), folder / "run");
    std::ofstream(run.file("config.resolved.json")) << "{}";
    EXPECT_EQ(errno_of([&] { RunFolder::create(folder / "run", true); }), EWOULDBLOCK);
  }
  EXPECT_EQ(files::read_whole_file(folder / "run/final/weights"), "old");
  EXPECT_THAT(folder.names(), ElementsAre("run"));

  RunFolder run = RunFolder::create(folder / "run", true);
  std::ofstream growing(run.file("metrics.jsonl"));
  growing << "first" << std::flush;
  EXPECT_EQ(files::read_whole_file(folder / "run/final/weights"), "old");
  run.keep();
  EXPECT_FALSE(run.replaces());
  growing << " second" << std::flush;
  EXPECT_EQ(run.file("x"), folder / "run/x");
  EXPECT_EQ(files::read_whole_file(folder / "run/metrics.jsonl"), "first second");
  EXPECT_THAT(files::names_in(folder / "run"), ElementsAre(".zinc-run", "metrics.jsonl"));
  EXPECT_THAT(folder.names(), ElementsAre("run"));
}

TEST(RunFolder, PlacesInsideIt_AreThoseOfTheNewRun) {
  const files::ScratchFolder folder;
  {
    const RunFolder run = RunFolder::create(folder / "run", false);
    EXPECT_EQ(run.place_of(folder / "run/trace.json"), folder / "run/trace.json");
  }
  kept(folder / "run", false);
  const RunFolder run = RunFolder::create(folder / "run", true);
  EXPECT_EQ(run.place_of(folder / "run/trace.json"), run.file("trace.json"));
  EXPECT_EQ(run.place_of(folder / "other/../run/a/b"), run.file("a/b"));
  EXPECT_NE(run.file("a/b"), folder / "run/a/b");
  for (const char* outside : {"runs/trace.json", "trace.json", "run/../trace.json"}) {
    EXPECT_EQ(run.place_of(folder / outside), folder / outside);
  }
}

TEST(RunFolder, WhatIsNoRun_IsNeverReplaced) {
  const files::ScratchFolder folder;
  folder.write("home/letter.txt", "dear");
  for (const bool force : {false, true}) {
    EXPECT_EQ(files::message_of<IoError>([&] { RunFolder::create(folder / "home", force); }),
              "cannot create run folder '" + (folder / "home") +
                  "': File exists (errno 17); it holds something that is not a run of zinc; choose "
                  "another folder");
  }
  folder.write("file", "x");
  EXPECT_NE(errno_of([&] { RunFolder::create(folder / "file", true); }), 0);
  EXPECT_EQ(files::read_whole_file(folder / "home/letter.txt"), "dear");
  EXPECT_THAT(folder.names(), ElementsAre("file", "home"));
}

TEST(RunFolder, LiveRun_IsNotReplacedEvenByForce) {
  const files::ScratchFolder folder;
  std::optional<RunFolder> live(kept(folder / "run", false));
  EXPECT_EQ(files::message_of<IoError>([&] { RunFolder::create(folder / "run", true); }),
            "cannot lock run folder '" + (folder / "run") +
                "': Resource temporarily unavailable (errno 11); another run is writing there; "
                "choose another folder");
  live.reset();
  kept(folder / "run", true);
}

TEST(RunFolder, ManyAtOnce_OneWins) {
  const files::ScratchFolder folder;
  for (int round = 0; round < 20; ++round) {
    const std::string path = folder / str("run", round);
    if (round % 2 == 1) kept(path, false);  // an old run, and everybody uses force
    std::atomic<int> winners = 0, waiting = 4;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        std::optional<RunFolder> mine;
        const int error = errno_of([&] { mine.emplace(kept(path, round % 2 == 1)); });
        EXPECT_TRUE(error == 0 || error == EEXIST || error == EWOULDBLOCK || error == ENOENT)
            << error;
        winners += mine.has_value();
        --waiting;
        while (waiting > 0) std::this_thread::yield();  // the winner holds on
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(winners, 1) << "round " << round;
    EXPECT_THAT(files::names_in(path), ElementsAre(".zinc-run"));
  }
}

TEST(RunFolder, WithoutKeep_NothingIsLeft) {
  const files::ScratchFolder folder;
  {
    const RunFolder run = RunFolder::create(folder / "run", false);
    std::ofstream(run.file("config.resolved.json")) << "{}";
  }
  EXPECT_THAT(folder.names(), ElementsAre());
}

// Whoever holds the folder has it for itself: nobody replaces it between the two steps by which a
// run takes an old folder's lock.
TEST(RunFolder, ManyReplacements_NeverOfALiveRun) {
  const files::ScratchFolder folder;
  const std::string path = folder / "run";
  kept(path, false);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int held = 0; held < 5;) {
        try {
          const RunFolder mine = kept(path, true);
          const std::string name = str("mine-", t, "-", held++);
          std::ofstream(mine.file(name)) << "x";
          std::this_thread::sleep_for(std::chrono::microseconds(200));
          EXPECT_THAT(files::names_in(path), ElementsAre(".zinc-run", name));
        } catch (const IoError&) {
          std::this_thread::sleep_for(std::chrono::microseconds(100 * (t + 1)));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace run_folder_test
}  // namespace zinc::train
