#include "train/files/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/error.h"

namespace zinc::train {

AppendFile::AppendFile(std::string path, Mode mode) : AppendFile(AT_FDCWD, path, path, mode) {}

AppendFile::AppendFile(const FileDescriptor& folder, const std::string& name, std::string path,
                       Mode mode)
    : AppendFile(folder.get(), name, std::move(path), mode) {}

AppendFile::AppendFile(int folder, const std::string& name, std::string path, Mode mode)
    : path_(std::move(path)) {
  const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | (mode == Mode::create ? O_EXCL : 0);
  fd_ = FileDescriptor(::openat(folder, name.c_str(), flags, 0666));
  if (!fd_) throw IoError("create", path_, -1, errno);
  struct stat info = {};
  if (::fstat(fd_.get(), &info) != 0) throw IoError("stat", path_, -1, errno);
  size_ = static_cast<int64_t>(info.st_size);
}

void AppendFile::append(std::string_view bytes) {
  int64_t end = size_;
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : 0;
      static_cast<void>(::ftruncate(fd_.get(), static_cast<off_t>(size_)) == 0);
      throw IoError("write", path_, end, error);
    }
    end += static_cast<int64_t>(n);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  size_ = end;
}

}  // namespace zinc::train
