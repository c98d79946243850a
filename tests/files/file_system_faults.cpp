#include "tests/files/file_system_faults.h"

#include <fcntl.h>
#include <stdio.h>  // RENAME_EXCHANGE
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

namespace zinc::files {
namespace {

struct PlannedFaults {
  std::vector<FileSystemFaults::Fault> faults;
  std::array<int, kNumFileSystemCalls> calls{};  // so far, by kind
};
std::mutex mutex;  // guards all of these
PlannedFaults planned_faults;
std::atomic<bool> faults_are_planned{false};

std::vector<FileSystemChange> changes;
std::atomic<bool> is_recording{false};

// The error of this call; -1: none is planned for it.
int planned_error(FileSystemCall call) {
  if (!faults_are_planned) return -1;
  const std::lock_guard lock(mutex);
  const int nth = ++planned_faults.calls[static_cast<size_t>(call)];
  for (const auto& fault : planned_faults.faults) {
    if (fault.call == call && fault.nth == nth) return fault.error;
  }
  return -1;
}

// True where this call fails, with errno set.
bool fails(FileSystemCall call) {
  const int error = planned_error(call);
  if (error > 0) errno = error;
  return error > 0;
}

// Turns a bit of the byte at `offset`, whatever way the file was opened.
void flip_a_bit(const std::string& path, off_t offset) {
  const auto file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDWR, 0));
  char byte = 0;
  ssize_t done = syscall(SYS_pread64, file, &byte, 1, offset);
  byte = static_cast<char>(byte ^ 4);
  done += syscall(SYS_pwrite64, file, &byte, 1, offset);
  ::close(file);
  if (done != 2) std::abort();
}

std::string path_of(int file) {
  std::array<char, PATH_MAX> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const auto size = ::readlink(link.c_str(), path.data(), path.size());
  return {path.data(), size > 0 ? static_cast<size_t>(size) : 0};
}

std::string path_of(int folder, const char* name) {
  if (name[0] == '/') return name;
  if (folder != AT_FDCWD) return path_of(folder) + '/' + name;
  std::array<char, PATH_MAX> here{};
  return std::string(::getcwd(here.data(), here.size())) + '/' + name;
}

bool exists(int folder, const char* name) {
  struct stat info = {};
  return ::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

// Notes a change where the call succeeded, and returns what it did.
template <class Result>
Result noted(Result result, FileSystemChange change) {
  if (is_recording && result >= 0) {
    const int error = errno;
    const std::lock_guard lock(mutex);
    changes.push_back(std::move(change));
    errno = error;
  }
  return result;
}

int open_at(int folder, const char* name, int flags, mode_t mode) {
  const bool creates = (flags & O_CREAT) != 0 && (flags & O_TMPFILE) != O_TMPFILE;
  if (fails(creates ? FileSystemCall::create : FileSystemCall::open)) return -1;
  const bool is_new = is_recording && creates && !exists(folder, name);
  const int file = static_cast<int>(syscall(SYS_openat, folder, name, flags, mode));
  if (!is_new) return file;
  return noted(file, {.kind = FileSystemChange::create_file, .path = path_of(folder, name)});
}

int remove_at(int folder, const char* name, int flags) {
  if (fails(FileSystemCall::remove)) return -1;
  std::string path = is_recording ? path_of(folder, name) : std::string();
  return noted(static_cast<int>(syscall(SYS_unlinkat, folder, name, flags)),
               {.kind = FileSystemChange::remove, .path = std::move(path)});
}

int rename_at(int from_folder, const char* from, int to_folder, const char* to,
              unsigned int flags) {
  const bool exchanges = (flags & RENAME_EXCHANGE) != 0;
  if (fails(exchanges ? FileSystemCall::exchange : FileSystemCall::rename)) return -1;
  FileSystemChange change;
  if (is_recording) {
    change = {.kind = exchanges ? FileSystemChange::exchange : FileSystemChange::rename,
              .path = path_of(from_folder, from),
              .to = path_of(to_folder, to)};
  }
  return noted(static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags)),
               std::move(change));
}

}  // namespace

FileSystemFaults::FileSystemFaults(std::vector<Fault> faults) {
  const std::lock_guard lock(mutex);
  planned_faults = {.faults = std::move(faults)};
  faults_are_planned = true;
}
FileSystemFaults::~FileSystemFaults() {
  const std::lock_guard lock(mutex);
  planned_faults = {};
  faults_are_planned = false;
}
int FileSystemFaults::calls(FileSystemCall call) {
  const std::lock_guard lock(mutex);
  return planned_faults.calls[static_cast<size_t>(call)];
}

FileSystemRecord::FileSystemRecord() { is_recording = true; }
FileSystemRecord::~FileSystemRecord() {
  is_recording = false;
  const std::lock_guard lock(mutex);
  changes.clear();
}
std::vector<FileSystemChange> FileSystemRecord::take() {
  const std::lock_guard lock(mutex);
  return std::exchange(changes, {});
}

}  // namespace zinc::files

using zinc::files::FileSystemCall;
using zinc::files::FileSystemChange;

extern "C" int open(const char* name, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return zinc::files::open_at(AT_FDCWD, name, flags, mode);
}

extern "C" int openat(int folder, const char* name, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return zinc::files::open_at(folder, name, flags, mode);
}

extern "C" int mkdir(const char* name, mode_t mode) noexcept {
  if (zinc::files::fails(FileSystemCall::create)) return -1;
  return zinc::files::noted(
      static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, name, mode)),
      {.kind = FileSystemChange::create_folder, .path = zinc::files::path_of(AT_FDCWD, name)});
}

extern "C" ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  const int error = zinc::files::planned_error(FileSystemCall::write);
  if (error > 0) {
    errno = error;
    return -1;
  }
  if (error == zinc::files::FileSystemFaults::Fault::kShort) size = (size + 1) / 2;
  const ssize_t written = syscall(SYS_pwrite64, file, bytes, size, offset);
  if (error == 0 && written > 0) {
    zinc::files::flip_a_bit(zinc::files::path_of(file), offset + written / 2);
  }
  if (!zinc::files::is_recording || written < 0) return written;
  return zinc::files::noted(
      written, {.kind = FileSystemChange::write,
                .path = zinc::files::path_of(file),
                .offset = offset,
                .bytes = {static_cast<const char*>(bytes), static_cast<size_t>(written)}});
}

extern "C" ssize_t pread(int file, void* bytes, size_t size, off_t offset) {
  const int error = zinc::files::planned_error(FileSystemCall::read);
  if (error > 0) {
    errno = error;
    return -1;
  }
  if (error == zinc::files::FileSystemFaults::Fault::kShort) size = (size + 1) / 2;
  return syscall(SYS_pread64, file, bytes, size, offset);
}

extern "C" int fstat(int file, struct stat* info) noexcept {
  if (zinc::files::fails(FileSystemCall::size)) return -1;
  return static_cast<int>(syscall(SYS_newfstatat, file, "", info, AT_EMPTY_PATH));
}

extern "C" int fsync(int file) {
  if (zinc::files::fails(FileSystemCall::sync)) return -1;
  std::string path = zinc::files::is_recording ? zinc::files::path_of(file) : std::string();
  return zinc::files::noted(static_cast<int>(syscall(SYS_fsync, file)),
                            {.kind = FileSystemChange::sync, .path = std::move(path)});
}

extern "C" int rename(const char* from, const char* to) noexcept {
  return zinc::files::rename_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned int flags) noexcept {
  return zinc::files::rename_at(from_folder, from, to_folder, to, flags);
}

extern "C" int unlink(const char* name) noexcept {
  return zinc::files::remove_at(AT_FDCWD, name, 0);
}

extern "C" int unlinkat(int folder, const char* name, int flags) noexcept {
  return zinc::files::remove_at(folder, name, flags);
}

extern "C" int rmdir(const char* name) noexcept {
  return zinc::files::remove_at(AT_FDCWD, name, AT_REMOVEDIR);
}
