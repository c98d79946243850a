// offload/file.h: a file of a Storage.
#pragma once

#include <cstdint>
#include <string>

namespace zinc::offload {

// Owns a file descriptor; move-only.
class File {
 public:
  // `path` names the file in messages. If `direct`, transfers must keep to alignment().
  File(int fd, std::string path, bool direct);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  bool is_direct() const { return direct_; }
  // In bytes. Addresses, offsets and sizes of direct transfers are multiples of it.
  int64_t alignment() const { return alignment_; }

 private:
  int fd_;
  std::string path_;
  bool direct_;
  int64_t alignment_;
};

// How a file that no other process sees is made.
enum class Unnamed : uint8_t {
  automatic,  // O_TMPFILE; if the file system lacks it, a name that is unlinked at once
  by_unlink,
};

// A file without a name in `directory`, mode 0600. It disappears with the process, however the
// process ends. Direct if the file system can do that. Throws IoError with the directory's name.
File open_unnamed(const std::string& directory, Unnamed how = Unnamed::automatic);
// An existing or new file for reading and writing, mode 0600.
File open_named(const std::string& path);

// Reserves these bytes on the file system: no later write into them runs out of space. Throws
// IoError that names the bytes needed and free.
void reserve(const File& file, int64_t bytes);

// "3.2 GiB free of 40 GiB" on the file's file system, for messages.
std::string free_space(int fd);

}  // namespace zinc::offload
