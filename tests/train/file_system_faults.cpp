#include "tests/train/file_system_faults.h"

#include <fcntl.h>
#include <stdio.h>  // RENAME_EXCHANGE
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>
#include <utility>

namespace zinc::train {
namespace {

struct PlannedFaults {
  std::vector<FileSystemFaults::Fault> faults;
  std::array<int, kNumFileSystemCalls> calls{};  // so far, by kind
};
thread_local PlannedFaults planned_faults;
thread_local bool faults_are_planned = false;

thread_local std::vector<FileSystemChange> changes;
thread_local bool is_recording = false;

// True where this call fails, with errno set.
bool fails(FileSystemCall call) {
  if (!faults_are_planned) return false;
  const int nth = ++planned_faults.calls[static_cast<size_t>(call)];
  for (const auto& fault : planned_faults.faults) {
    if (fault.call != call || fault.nth != nth) continue;
    errno = fault.error;
    return true;
  }
  return false;
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
    changes.push_back(std::move(change));
    errno = error;
  }
  return result;
}

int open_at(int folder, const char* name, int flags, mode_t mode) {
  const bool creates = (flags & O_CREAT) != 0 && (flags & O_TMPFILE) != O_TMPFILE;
  if (creates && fails(FileSystemCall::create)) return -1;
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
  planned_faults = {.faults = std::move(faults)};
  faults_are_planned = true;
}
FileSystemFaults::~FileSystemFaults() {
  planned_faults = {};
  faults_are_planned = false;
}
int FileSystemFaults::calls(FileSystemCall call) {
  return planned_faults.calls[static_cast<size_t>(call)];
}

FileSystemRecord::FileSystemRecord() { is_recording = true; }
FileSystemRecord::~FileSystemRecord() {
  is_recording = false;
  changes.clear();
}
std::vector<FileSystemChange> FileSystemRecord::take() { return std::exchange(changes, {}); }

}  // namespace zinc::train

using zinc::train::FileSystemCall;
using zinc::train::FileSystemChange;

extern "C" int open(const char* name, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return zinc::train::open_at(AT_FDCWD, name, flags, mode);
}

extern "C" int openat(int folder, const char* name, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return zinc::train::open_at(folder, name, flags, mode);
}

extern "C" int mkdir(const char* name, mode_t mode) noexcept {
  if (zinc::train::fails(FileSystemCall::create)) return -1;
  return zinc::train::noted(
      static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, name, mode)),
      {.kind = FileSystemChange::create_folder, .path = zinc::train::path_of(AT_FDCWD, name)});
}

extern "C" ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  if (zinc::train::fails(FileSystemCall::write)) return -1;
  const ssize_t written = syscall(SYS_pwrite64, file, bytes, size, offset);
  if (!zinc::train::is_recording || written < 0) return written;
  return zinc::train::noted(
      written, {.kind = FileSystemChange::write,
                .path = zinc::train::path_of(file),
                .offset = offset,
                .bytes = {static_cast<const char*>(bytes), static_cast<size_t>(written)}});
}

extern "C" int fsync(int file) {
  if (zinc::train::fails(FileSystemCall::sync)) return -1;
  std::string path = zinc::train::is_recording ? zinc::train::path_of(file) : std::string();
  return zinc::train::noted(static_cast<int>(syscall(SYS_fsync, file)),
                            {.kind = FileSystemChange::sync, .path = std::move(path)});
}

extern "C" int rename(const char* from, const char* to) noexcept {
  return zinc::train::rename_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned int flags) noexcept {
  return zinc::train::rename_at(from_folder, from, to_folder, to, flags);
}

extern "C" int unlink(const char* name) noexcept {
  return zinc::train::remove_at(AT_FDCWD, name, 0);
}

extern "C" int unlinkat(int folder, const char* name, int flags) noexcept {
  return zinc::train::remove_at(folder, name, flags);
}

extern "C" int rmdir(const char* name) noexcept {
  return zinc::train::remove_at(AT_FDCWD, name, AT_REMOVEDIR);
}
