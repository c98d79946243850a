// Calls of the file system that fail as a test says, and a record of the calls that changed
// something, in all threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zinc::files {

enum class FileSystemCall : uint8_t {
  sync,      // fsync, of files and folders
  rename,    // rename
  exchange,  // renameat2 with RENAME_EXCHANGE
  write,     // pwrite
  create,    // open or openat with O_CREAT, mkdir
  remove,    // unlink, unlinkat, rmdir
  open,      // open without O_CREAT
  size,      // fstat
  read,      // pread
};
inline constexpr int kNumFileSystemCalls = 9;

// While it lives, the nth call (from 1) of a kind fails with `error`; all others reach the system.
// One at a time.
class FileSystemFaults {
 public:
  struct Fault {
    FileSystemCall call;
    int nth = 1;
    // 0: a write reports success, and a bit of its bytes is wrong. kShort: a write or a read does
    // half, and says so.
    int error = 0;
    static constexpr int kShort = -2;
  };
  explicit FileSystemFaults(std::vector<Fault> faults);
  // The number of calls of a kind so far.
  static int calls(FileSystemCall call);
  ~FileSystemFaults();
  FileSystemFaults(const FileSystemFaults&) = delete;
  FileSystemFaults& operator=(const FileSystemFaults&) = delete;
};

// A call that changed something, with absolute paths.
struct FileSystemChange {
  enum Kind : uint8_t { create_file, create_folder, write, sync, rename, exchange, remove };
  Kind kind = create_file;
  std::string path;
  std::string to{};  // rename, exchange
  int64_t offset = 0;
  std::string bytes{};  // write
};

// While it lives, what changes is noted. One at a time.
class FileSystemRecord {
 public:
  FileSystemRecord();
  ~FileSystemRecord();
  FileSystemRecord(const FileSystemRecord&) = delete;
  FileSystemRecord& operator=(const FileSystemRecord&) = delete;
  std::vector<FileSystemChange> take();
};

}  // namespace zinc::files
