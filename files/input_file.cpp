#include "files/input_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/error.h"
#include "files/nearest_path.h"

namespace zinc::files {

void FileDescriptor::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

namespace {

struct Opened {
  FileDescriptor fd;
  int64_t size;
};

Opened open_regular(const std::string& path) {
  // O_NONBLOCK so that opening a pipe returns at once; it means nothing for regular files.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) {
      throw DataError(no_such_path("file", path));
    }
    throw IoError("open", path, -1, error);
  }
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) throw IoError("stat", path, -1, errno);
  if (!S_ISREG(info.st_mode)) {
    throw DataError(str("'", path, "' is ", S_ISDIR(info.st_mode) ? "a folder" : "a device",
                        ", not a regular file"));
  }
  return {std::move(fd), static_cast<int64_t>(info.st_size)};
}

}  // namespace

InputFile InputFile::open(const std::string& path) {
  Opened opened = open_regular(path);
  return InputFile(path, std::move(opened.fd), opened.size);
}

void InputFile::read(int64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd_.get(), out.data() + done, out.size() - done,
                              static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoError("read", path_, offset + static_cast<int64_t>(done), errno);
    if (n == 0) {
      throw DataError(str(path_, ": ends at byte ", offset + static_cast<int64_t>(done),
                          ", before byte ", offset + static_cast<int64_t>(out.size())));
    }
    done += static_cast<size_t>(n);
  }
}

MappedFile MappedFile::open(const std::string& path) {
  Opened opened = open_regular(path);
  MappedFile file;
  file.path_ = path;
  file.fd_ = std::move(opened.fd);
  file.size_ = opened.size;
  if (file.size_ > 0) {
    void* data =
        ::mmap(nullptr, static_cast<size_t>(file.size_), PROT_READ, MAP_SHARED, file.fd_.get(), 0);
    if (data == MAP_FAILED) throw IoError("map", path, 0, errno);
    file.data_ = data;
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  MappedFile taken(std::move(other));
  std::swap(path_, taken.path_);
  std::swap(fd_, taken.fd_);
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_));
}

void MappedFile::require_unchanged() const {
  struct stat info = {};
  if (::fstat(fd_.get(), &info) != 0) throw IoError("stat", path_, -1, errno);
  if (info.st_size < size_) {
    throw DataError(str(path_, ": was cut from ", size_, " to ", static_cast<int64_t>(info.st_size),
                        " bytes while in use"));
  }
}

std::string read_text_file(const std::string& path, int64_t limit_bytes) {
  const InputFile file = InputFile::open(path);
  if (file.size() > limit_bytes) {
    throw DataError(
        str(path, ": has ", file.size(), " bytes; at most ", limit_bytes, " are allowed here"));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool file_exists(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool folder_exists(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace zinc::files
