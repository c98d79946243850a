// Wrong bytes in a swap file.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "tests/offload/swap_folder.h"

namespace zinc::offload {

// While it lives, the bytes of one page of a swap file in `folder` are wrong. `file`: its number
// among the open files, in the order of opening.
class DamagedPage {
 public:
  DamagedPage(const SwapFolder& folder, int64_t page, size_t file = 0)
      : fd_(open_swap_file(folder, file)), offset_(page * kPage) {
    EXPECT_EQ(::pread(fd_, bytes_.data(), bytes_.size(), offset_), kPage);
    std::array<char, kPage> wrong = bytes_;
    for (char& byte : wrong) byte = static_cast<char>(~byte);
    write(wrong);
  }
  ~DamagedPage() {
    write(bytes_);
    ::close(fd_);
  }
  DamagedPage(const DamagedPage&) = delete;
  DamagedPage& operator=(const DamagedPage&) = delete;

  static int64_t pages_in(const SwapFolder& folder, size_t file = 0) {
    const int fd = open_swap_file(folder, file);
    const auto bytes = ::lseek(fd, 0, SEEK_END);
    ::close(fd);
    return bytes / kPage;
  }

 private:
  static constexpr int64_t kPage = 4096;

  // Opens the file, which has no name, by the engine's descriptor. Not direct.
  static int open_swap_file(const SwapFolder& folder, size_t file) {
    std::vector<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
      if (name.starts_with(folder.path())) found.push_back(std::stoi(entry.path().filename()));
    }
    std::sort(found.begin(), found.end());
    if (file < found.size()) {
      return ::open(("/proc/self/fd/" + std::to_string(found[file])).c_str(), O_RDWR | O_CLOEXEC);
    }
    ADD_FAILURE() << "no file " << file << " in " << folder.path();
    return -1;
  }
  void write(const std::array<char, kPage>& bytes) const {
    EXPECT_EQ(::pwrite(fd_, bytes.data(), bytes.size(), offset_), kPage);
    EXPECT_EQ(::fdatasync(fd_), 0);  // a direct read finds it
  }

  int fd_;
  int64_t offset_;
  std::array<char, kPage> bytes_;
};

}  // namespace zinc::offload
