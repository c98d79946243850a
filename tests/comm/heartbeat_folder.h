// tests/comm/heartbeat_folder.h: a folder of heartbeat files for one test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/error.h"

namespace zinc::comm::testing {

class HeartbeatFolder {
 public:
  HeartbeatFolder() {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    path_ = ::testing::TempDir() + "zinc_" + name + std::to_string(::getpid());
    std::filesystem::remove_all(path_);
  }
  ~HeartbeatFolder() {
    if (!pipe_.empty()) ::close(::open(pipe_.c_str(), O_RDWR));  // readers find its end
    std::filesystem::remove_all(path_);
  }
  HeartbeatFolder(const HeartbeatFolder&) = delete;
  HeartbeatFolder& operator=(const HeartbeatFolder&) = delete;

  const std::string& path() const { return path_; }
  // From now on reading this rank's file blocks, as in a folder whose server is gone: the file is a
  // pipe that nobody writes.
  void hang_at(int rank) {
    pipe_ = str(path_, "/rank_", rank, ".heartbeat");
    std::filesystem::remove(pipe_);
    ASSERT_EQ(::mkfifo(pipe_.c_str(), 0600), 0);
  }

 private:
  std::string path_;
  std::string pipe_;
};

}  // namespace zinc::comm::testing
