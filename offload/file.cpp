#include "offload/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include "core/allocator.h"
#include "core/error.h"

namespace zinc::offload {
namespace {

constexpr int kNameAttempts = 16;

int64_t alignment_of(int fd, bool direct) {
  if (!direct) return 1;
  int64_t alignment = kIoAlignment;
#ifdef STATX_DIOALIGN
  struct statx about {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 &&
      (about.stx_mask & STATX_DIOALIGN) != 0) {
    alignment = std::max({alignment, static_cast<int64_t>(about.stx_dio_mem_align),
                          static_cast<int64_t>(about.stx_dio_offset_align)});
  }
#else
  static_cast<void>(fd);
#endif
  return alignment;
}

struct Opened {
  int fd = -1;
  bool direct = false;
  int error = 0;
};

// Without O_DIRECT where the file system refuses it.
Opened open_direct_if_possible(const std::string& path, int flags) {
  const int common = flags | O_RDWR | O_CLOEXEC;
  const int direct = ::open(path.c_str(), common | O_DIRECT, 0600);
  if (direct >= 0) return {.fd = direct, .direct = true};
  if (errno != EINVAL) return {.error = errno};
  const int plain = ::open(path.c_str(), common, 0600);
  return {.fd = plain, .error = plain < 0 ? errno : 0};
}

std::string hint_for(int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return "nvme_path must name a directory that exists; create it";
  }
  if (error == EACCES || error == EPERM || error == EROFS) {
    return "nvme_path must name a directory that this user may write to";
  }
  return {};
}

File open_and_unlink(const std::string& directory) {
  std::random_device random;
  for (int attempt = 0;; ++attempt) {
    const std::string path =
        fmt::format("{}/.zinc-swap-{:08x}{:08x}", directory, random(), random());
    const Opened opened = open_direct_if_possible(path, O_CREAT | O_EXCL | O_NOFOLLOW);
    if (opened.fd >= 0) {
      File file(opened.fd, path, opened.direct);
      if (::unlink(path.c_str()) != 0) throw IoError("unlink", path, -1, errno);
      return file;
    }
    if (opened.error != EEXIST || attempt == kNameAttempts) {
      throw IoError("open", directory, -1, opened.error, hint_for(opened.error));
    }
  }
}

}  // namespace

File::File(int fd, std::string path, bool direct)
    : fd_(fd), path_(std::move(path)), direct_(direct), alignment_(alignment_of(fd, direct)) {}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      direct_(other.direct_),
      alignment_(other.alignment_) {}

File& File::operator=(File&& other) noexcept {
  File taken(std::move(other));
  std::swap(fd_, taken.fd_);
  std::swap(path_, taken.path_);
  std::swap(direct_, taken.direct_);
  std::swap(alignment_, taken.alignment_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File open_unnamed(const std::string& directory, Unnamed how) {
  if (how == Unnamed::automatic) {
    // O_EXCL: the file can never be given a name.
    const Opened opened = open_direct_if_possible(directory, O_TMPFILE | O_EXCL);
    if (opened.fd >= 0) return File(opened.fd, directory + "/(swap)", opened.direct);
    if (opened.error != EOPNOTSUPP && opened.error != EISDIR) {
      throw IoError("open", directory, -1, opened.error, hint_for(opened.error));
    }
  }
  return open_and_unlink(directory);
}

File open_named(const std::string& path) {
  const Opened opened = open_direct_if_possible(path, O_CREAT | O_NOFOLLOW);
  if (opened.fd < 0) throw IoError("open", path, -1, opened.error, hint_for(opened.error));
  return File(opened.fd, path, opened.direct);
}

void reserve(const File& file, int64_t bytes) {
  require(bytes >= 0, "reserve: ", bytes, " bytes");
  if (bytes == 0) return;
  int result = 0;
  do {
    result = ::fallocate(file.fd(), 0, 0, bytes) == 0 ? 0 : errno;
  } while (result == EINTR);
  if (result == EOPNOTSUPP) result = ::posix_fallocate(file.fd(), 0, bytes);
  if (result == 0) return;
  throw IoError("reserve", file.path(), 0, result,
                str(bytes, " bytes of swap are needed; ", free_space(file.fd())));
}

std::string free_space(int fd) {
  struct statvfs about {};
  if (::fstatvfs(fd, &about) != 0) return "free space unknown";
  const double unit = static_cast<double>(about.f_frsize) / (1 << 20);
  return fmt::format("{:.1f} MiB free of {:.1f} MiB on its file system",
                     static_cast<double>(about.f_bavail) * unit,
                     static_cast<double>(about.f_blocks) * unit);
}

}  // namespace zinc::offload
