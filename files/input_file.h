// files/input_file.h: reads files that other programs made.
//
// Only regular files: a pipe would block for ever. The size is asked once, at opening; a file that
// is cut shorter while it is in use is a DataError, never a fault. A file that does not exist, or
// is not a regular file, is a DataError; every other failure of the system is an IoError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "files/file_descriptor.h"

namespace zinc::files {

// Positioned reads; safe to share between threads.
class InputFile {
 public:
  static InputFile open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes, when it was opened
  // Fills `out` from `offset` on.
  void read(int64_t offset, std::span<std::byte> out) const;

 private:
  InputFile(std::string path, FileDescriptor fd, int64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  std::string path_;
  FileDescriptor fd_;
  int64_t size_;
};

// A whole file as read-only memory. Pages come from the page cache and cost no memory of their own.
class MappedFile {
 public:
  static MappedFile open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data_), static_cast<size_t>(size_)};
  }
  // Throws DataError when the file has become shorter, so that reading the lost pages is an error
  // and not a SIGBUS. Called before a range is read; it narrows the race, it cannot close it.
  void require_unchanged() const;

 private:
  MappedFile() = default;
  std::string path_;
  FileDescriptor fd_;
  void* data_ = nullptr;
  int64_t size_ = 0;
};

// The whole content; DataError where the file is larger than `limit_bytes`.
std::string read_text_file(const std::string& path, int64_t limit_bytes);

bool file_exists(const std::string& path);    // a regular file, or a link to one
bool folder_exists(const std::string& path);  // a folder, or a link to one

}  // namespace zinc::files
