#include "files/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "core/error.h"
#include "files/input_file.h"

namespace zinc::files {

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

void drop_later_lines(const std::string& path,
                      const std::function<bool(std::string_view line)>& is_later) {
  if (!file_exists(path)) return;
  const InputFile file = InputFile::open(path);
  constexpr int64_t kAtOnce = int64_t{1} << 20;
  std::string held;  // text from the start of the current line on
  int64_t kept = 0;  // bytes of whole lines so far
  for (int64_t at = 0; at < file.size();) {
    const size_t begin = held.size();
    held.resize(begin + static_cast<size_t>(std::min(kAtOnce, file.size() - at)));
    file.read(at, std::as_writable_bytes(std::span(held).subspan(begin)));
    at += static_cast<int64_t>(held.size() - begin);
    size_t line = 0;
    for (size_t end = 0; (end = held.find('\n', line)) != std::string::npos; line = end + 1) {
      if (is_later(std::string_view(held).substr(line, end - line))) {
        at = file.size();
        break;
      }
      kept += static_cast<int64_t>(end + 1 - line);
    }
    held.erase(0, line);
  }
  if (kept == file.size()) return;
  if (::truncate(path.c_str(), static_cast<off_t>(kept)) != 0) {
    throw IoError("cut", path, kept, errno);
  }
}

}  // namespace zinc::files
