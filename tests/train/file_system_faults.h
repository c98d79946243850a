// Calls of the file system that fail as a test says, in the thread that says so.
#pragma once

#include <cstdint>
#include <vector>

namespace zinc::train {

enum class FileSystemCall : uint8_t {
  sync,      // fsync, of files and folders
  rename,    // rename
  exchange,  // renameat2 with RENAME_EXCHANGE
};

// While it lives, this thread's nth call (from 1) of a kind fails with `error`; all others reach
// the system. One at a time.
class FileSystemFaults {
 public:
  struct Fault {
    FileSystemCall call;
    int nth = 1;
    int error = 0;
  };
  explicit FileSystemFaults(std::vector<Fault> faults);
  ~FileSystemFaults();
  FileSystemFaults(const FileSystemFaults&) = delete;
  FileSystemFaults& operator=(const FileSystemFaults&) = delete;
};

}  // namespace zinc::train
