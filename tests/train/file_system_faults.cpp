#include "tests/train/file_system_faults.h"

#include <fcntl.h>
#include <stdio.h>  // RENAME_EXCHANGE
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace zinc::train {
namespace {

struct PlannedFaults {
  std::vector<FileSystemFaults::Fault> faults;
  std::array<int, 3> calls{};  // so far, by kind
};
thread_local PlannedFaults planned_faults;

// True where this call fails, with errno set.
bool fails(FileSystemCall call) {
  if (planned_faults.faults.empty()) return false;
  const int nth = ++planned_faults.calls[static_cast<size_t>(call)];
  for (const auto& fault : planned_faults.faults) {
    if (fault.call != call || fault.nth != nth) continue;
    errno = fault.error;
    return true;
  }
  return false;
}

}  // namespace

FileSystemFaults::FileSystemFaults(std::vector<Fault> faults) {
  planned_faults = {.faults = std::move(faults)};
}
FileSystemFaults::~FileSystemFaults() { planned_faults = {}; }

}  // namespace zinc::train

extern "C" int rename(const char* from, const char* to) noexcept {
  if (zinc::train::fails(zinc::train::FileSystemCall::rename)) return -1;
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned int flags) noexcept {
  if ((flags & RENAME_EXCHANGE) != 0 && zinc::train::fails(zinc::train::FileSystemCall::exchange)) {
    return -1;
  }
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

extern "C" int fsync(int file) {
  if (zinc::train::fails(zinc::train::FileSystemCall::sync)) return -1;
  return static_cast<int>(syscall(SYS_fsync, file));
}
