#include "comm/heartbeat.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/comm/heartbeat_folder.h"
#include "tests/comm/rank_data.h"
#include "tests/core/await.h"

namespace zinc::comm::testing {
namespace heartbeat_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HeartbeatFiles : public ::testing::Test {
 protected:
  HeartbeatFolder folder_;
  const std::string& directory_ = folder_.path();
};

TEST_F(HeartbeatFiles, LocalRanks_TellTheirLastCollectives) {
  run_local_ranks(2, {.num_threads = 1, .heartbeat_directory = directory_}, [](World& world) {
    std::vector<float> shard(3);
    std::vector<float> all(6);
    const StreamRef stream = world.context().stream(StreamRole::gather);
    world.communicator().all_gather({view_of(shard), view_of(all)}, stream).wait();
    world.communicator().barrier(stream).wait();
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = read_heartbeat(directory_, rank);
    EXPECT_THAT(text, AllOf(HasSubstr("rank " + std::to_string(rank) + " of 2, process " +
                                      std::to_string(::getpid())),
                            HasSubstr("issued    barrier #2 of world, at "),
                            HasSubstr("completed barrier #2 of world, at ")));
  }
}

// The error of rank 0, which waits in a barrier for rank 1 after both did what is `before` it.
std::string error_of_a_missed_deadline(const std::string& directory,
                                       const std::function<void(World&)>& before) {
  const ConnectOptions options{
      .num_threads = 1, .deadline = std::chrono::seconds(60), .heartbeat_directory = directory};
  std::atomic<bool> zero_has_given_up = false;
  try {
    run_local_ranks(2, options, [&](World& world) {
      before(world);
      world.communicator().set_deadline(std::chrono::milliseconds(100));
      if (world.rank() == 1) return await([&] { return zero_has_given_up.load(); });
      try {
        world.communicator().barrier(world.context().stream(StreamRole::gather)).wait();
      } catch (...) {
        zero_has_given_up = true;
        throw;
      }
    });
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

class HeartbeatFolderThatHangs : public HeartbeatFiles {
 protected:
  std::string error() {
    return error_of_a_missed_deadline(directory_, [&](World& world) {
      const StreamRef stream = world.context().stream(StreamRole::gather);
      world.communicator().barrier(stream).wait();
      if (world.rank() == 0) folder_.hang_at(1);
      world.communicator().barrier(stream).wait();
    });
  }
};
class HeartbeatPace : public HeartbeatFolderThatHangs {};

// The folder hangs until the end of the test.
TEST_F(HeartbeatFolderThatHangs, HoldsNoErrorUp) {
  EXPECT_THAT(error(), AllOf(HasSubstr("waiting for rank 1"), HasSubstr("heartbeats:\nrank 0"),
                             HasSubstr("folder does not answer")));
}

// Less than the 3 s that a dead rank may take to end a job, its deadline and the test's own time.
TEST_F(HeartbeatPace, AFolderThatHangs_CostsLessThanTwoSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(error(), HasSubstr("folder does not answer"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2000));
}

TEST_F(HeartbeatFiles, MissedDeadline_ShowsWhereEveryRankWas) {
  const std::string text = error_of_a_missed_deadline(directory_, [](World& world) {
    std::vector<float> x(3);
    const StreamRef stream = world.context().stream(StreamRole::gather);
    world.communicator().broadcast({view_of(x), 0}, stream).wait();
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr("rank 0: barrier #2: no progress for 100 ms: waiting for rank 1"),
                    HasSubstr("issued    barrier #2 of world"), HasSubstr("rank 1 of 2"),
                    HasSubstr("issued    broadcast #1 (3 x f32 from rank 0) of world")));
}

TEST_F(HeartbeatFiles, PlantedLink_IsReplacedAndNotFollowed) {
  std::filesystem::create_directories(directory_);
  const std::string victim = directory_ + "/victim";
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, directory_ + "/rank_0.heartbeat");
  const Heartbeat heartbeat(directory_, 0, 1);
  std::ifstream file(victim);
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(text, "precious");
  EXPECT_THAT(read_heartbeat(directory_, 0), HasSubstr("rank 0 of 1"));
}

TEST_F(HeartbeatFiles, DirectoryThatCannotBeMade_IsAnIoErrorWithItsPath) {
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ + "/file") << "x";
  try {
    const Heartbeat heartbeat(directory_ + "/file/below", 0, 1);
    FAIL() << "nothing was thrown";
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), directory_ + "/file/below");
  }
}

}  // namespace heartbeat_test
}  // namespace zinc::comm::testing
