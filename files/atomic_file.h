// files/atomic_file.h: writes files and folders that are either complete or absent.
//
// Everything is written under a temporary name beside the target (".<name>.tmp-<pid>-<n>", in the
// same folder), synced, and renamed: the target is never half-written, not after a full disk and
// not after a kill at any instant. The destructor removes files and folders that were not
// committed, except a complete folder that the system would not rename. Every failure of the system
// is an IoError with path, offset and errno.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "files/file_descriptor.h"

namespace zinc::files {

// One file. Writes go to any offset, in any order.
class AtomicFile {
 public:
  // The file gets mode 0666 less the umask. `reserve_bytes` > 0: the file has that size from the
  // start and its space is claimed, so that a full disk shows here and not half-way.
  explicit AtomicFile(std::string path, int64_t reserve_bytes = 0);
  // A file that several processes write, in a folder that nobody reads yet (AtomicFolder): it has
  // its own name from the start. One process creates it, then the others open it. commit() syncs
  // the bytes that this process wrote; the folder's commit makes the file appear whole or not at
  // all. `direct`: whole pages go past the page cache where the file system lets them, from two
  // buffers of 4 MiB and beside the caller: a large file then takes neither memory nor much
  // processor time from other work. A failure may show at a later write() or at commit(). The
  // buffers are `memory`, kDirectBytes at a multiple of kIoAlignment that outlive the file; empty:
  // its own.
  static constexpr int64_t kDirectBytes = 2 * ((int64_t{4} << 20) + 2 * kIoAlignment);
  static AtomicFile create_shared(std::string path, int64_t reserve_bytes, bool direct = false,
                                  std::span<std::byte> memory = {});
  static AtomicFile open_shared(std::string path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  const std::string& path() const { return path_; }
  void write(int64_t offset, std::span<const std::byte> bytes);
  // Syncs, renames onto `path` (replacing an old file) and syncs the folder. Call once.
  void commit();

 private:
  AtomicFile(std::string path, FileDescriptor fd);
  // Writes consecutive bytes past the page cache.
  struct Stream;
  void flush();
  void write_all(int64_t offset, std::span<const std::byte> bytes);

  std::string path_;
  std::string temporary_path_;  // empty once committed, and where the file is shared
  FileDescriptor fd_;
  std::unique_ptr<Stream> stream_;  // null: everything goes through the page cache
  bool committed_ = false;
  bool failed_ = false;  // a part may be missing
};

// Writes a small file in one go.
void write_file_atomically(const std::string& path, std::string_view content);

// A folder that is filled under path() and then appears under its name at once.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::string target);
  AtomicFolder(AtomicFolder&& other) noexcept;
  AtomicFolder& operator=(AtomicFolder&&) = delete;
  ~AtomicFolder();

  const std::string& path() const { return temporary_path_; }  // write files here
  // Renames onto the target. The files inside must have been synced (AtomicFile does). An existing
  // non-empty target is an IoError with EEXIST unless `replace`: then both change places in one
  // step, or where the file system cannot do that in two (old aside, new in), and the old one is
  // deleted last. Where the system fails the new folder stays, and the error's hint names it; so
  // does the old one where it cannot be put back.
  void commit(bool replace);

 private:
  std::string target_;
  std::string temporary_path_;  // empty once committed
};

// A file or folder that AtomicFile or AtomicFolder has under construction, or that a killed process
// has left: ".<target>.tmp-<process>-<n>". Sorted by path. IoError where the folder cannot be read;
// none where there is no such folder.
struct TemporaryName {
  std::string path;
  std::string target;  // a plain name
  pid_t process = 0;
};
std::vector<TemporaryName> temporaries_in(const std::string& folder);

// Copies to a name that does not exist yet. The data is durable, the name is not.
void copy_durably(const std::string& from, const std::string& to);

// Makes the names in a folder durable.
void sync_folder(const std::string& path);

// The folder part of a path ("." where there is none) and what follows it.
std::string parent_folder(const std::string& path);
std::string file_name(const std::string& path);

// Parents included, like mkdir -p.
void create_folders(const std::string& path);

}  // namespace zinc::files
