#include "files/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdio>  // renameat2

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <future>
#include <new>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace zinc::files {
namespace {

constexpr std::string_view kTemporary = ".tmp-";
constexpr int64_t kPage = kIoAlignment;
constexpr auto kPageAlignment = std::align_val_t{kPage};
constexpr int64_t kStreamBytes = AtomicFile::kDirectBytes / 2;  // 4 MiB from anywhere in a page

// A name that no other process or thread uses now: the process id keeps processes apart, the
// counter threads. A name left by a killed process of the same id is skipped by O_EXCL and mkdir.
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return str(parent_folder(path), "/.", file_name(path), kTemporary, static_cast<int64_t>(getpid()),
             "-", counter.fetch_add(1));
}

void reserve_space(int fd, const std::string& path, int64_t bytes) {
  int error = 0;
  do {
    error = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS) {  // the file system cannot; writes will tell
    error = ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }
  if (error != 0) throw IoError(str("reserve ", bytes, " bytes for"), path, -1, error);
}

void write_whole(int fd, const std::string& path, int64_t offset,
                 std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pwrite(fd, bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw IoError("write", path, offset + static_cast<int64_t>(done), n < 0 ? errno : 0);
    }
    done += static_cast<size_t>(n);
  }
}

// Writes past the page cache. Bytes that the file system does not take that way, and the rest of a
// page that a full disk took in part, go through the cache.
void write_pages(int direct, int cached, const std::string& path, int64_t offset,
                 std::span<const std::byte> pages) {
  while (!pages.empty()) {
    const ssize_t n = ::pwrite(direct, pages.data(), pages.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EINVAL) throw IoError("write", path, offset, errno);
    const ssize_t whole = std::max<ssize_t>(n, 0) / kPage * kPage;
    offset += whole;
    pages = pages.subspan(static_cast<size_t>(whole));
    if (n <= 0 || n != whole) return write_whole(cached, path, offset, pages);
  }
}

void remove_folder(const std::string& path) noexcept {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string kept_in(const std::string& folder) {
  return str("what was to stand there is complete, and kept as '", folder, "'");
}

// Renames the old folder aside and the new one in; if that fails, the old one back. Returns where
// the old folder lies then. A process that is killed between the two leaves both, under names that
// say of which target they are.
std::string replace_in_two_steps(const std::string& fresh, const std::string& target) {
  std::string aside;
  int error = 0;
  for (int attempt = 0; attempt < 100; ++attempt) {
    aside = temporary_name(target);
    error = ::rename(target.c_str(), aside.c_str()) == 0 ? 0 : errno;
    if (error != ENOTEMPTY && error != EEXIST) break;
  }
  if (error != 0) throw IoError("move away folder", target, -1, error, kept_in(fresh));
  if (::rename(fresh.c_str(), target.c_str()) == 0) return aside;
  error = errno;
  std::string hint = kept_in(fresh);
  if (::rename(aside.c_str(), target.c_str()) != 0) {
    hint += str(", and the old folder as '", aside, "'");
  }
  throw IoError("replace folder", target, -1, error, hint);
}

}  // namespace

std::string parent_folder(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string file_name(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::vector<TemporaryName> temporaries_in(const std::string& folder) {
  std::vector<TemporaryName> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    const size_t mark = name.rfind(kTemporary);
    if (!name.starts_with('.') || mark == std::string::npos || mark < 2) continue;
    const char* number = name.data() + mark + kTemporary.size();
    pid_t process = 0;
    const auto [rest, failure] = std::from_chars(number, name.data() + name.size(), process);
    if (failure != std::errc() || rest == name.data() + name.size() || *rest != '-') continue;
    found.push_back({at->path().string(), name.substr(1, mark - 1), process});
  }
  if (error && error.value() != ENOENT) throw IoError("read folder", folder, -1, error.value());
  std::ranges::sort(found, {}, &TemporaryName::path);
  return found;
}

void create_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw IoError("create folder", path, -1, error.value());
}

void copy_durably(const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::copy_file(from, to, error);
  if (error) throw IoError("copy " + from, to, -1, error.value());
  const FileDescriptor fd(::open(to.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) throw IoError("sync", to, -1, errno);
}

void sync_folder(const std::string& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw IoError("open folder", path, -1, errno);
  // Some file systems have nothing to sync for a folder and say so by EINVAL.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) throw IoError("sync folder", path, -1, errno);
}

struct AtomicFile::Stream {
  struct Delete {
    void operator()(std::byte* pages) const { ::operator delete[](pages, kPageAlignment); }
  };

  Stream(FileDescriptor fd, std::span<std::byte> memory) : direct(std::move(fd)) {
    require(memory.empty() || static_cast<int64_t>(memory.size()) >= AtomicFile::kDirectBytes,
            "AtomicFile: buffers of ", memory.size(), " bytes; ", AtomicFile::kDirectBytes,
            " are needed");
    if (memory.empty()) own.reset(new (kPageAlignment) std::byte[AtomicFile::kDirectBytes]);
    buffer = memory.empty() ? own.get() : memory.data();
    other = buffer + kStreamBytes;
  }

  // Buffers begin at a page of the file, with `begin` in it.
  std::byte* at(int64_t offset) const { return buffer + begin % kPage + (offset - begin); }
  int64_t room() const { return kStreamBytes - begin % kPage - (end - begin); }
  std::span<const std::byte> part(int64_t from, int64_t to) const {
    return {at(from), static_cast<size_t>(to - from)};
  }

  FileDescriptor direct;
  std::unique_ptr<std::byte[], Delete> own;  // null: the caller's
  std::byte* buffer = nullptr;
  std::byte* other = nullptr;
  int64_t begin = 0, end = 0;            // offsets of the bytes in the buffer
  std::shared_future<void> under_way{};  // the write from the other buffer
};

AtomicFile::AtomicFile(std::string path, int64_t reserve_bytes) : path_(std::move(path)) {
  for (int attempt = 0; !fd_; ++attempt) {
    temporary_path_ = temporary_name(path_);
    fd_ = FileDescriptor(::open(temporary_path_.c_str(),
                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!fd_ && (errno != EEXIST || attempt == 100)) throw IoError("create", path_, -1, errno);
  }
  if (reserve_bytes <= 0) return;
  try {
    reserve_space(fd_.get(), path_, reserve_bytes);
  } catch (...) {
    ::unlink(temporary_path_.c_str());
    throw;
  }
}

AtomicFile::AtomicFile(std::string path, FileDescriptor fd)
    : path_(std::move(path)), fd_(std::move(fd)) {}

AtomicFile AtomicFile::create_shared(std::string path, int64_t reserve_bytes, bool direct,
                                     std::span<std::byte> memory) {
  FileDescriptor fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) throw IoError("create", path, -1, errno);
  if (reserve_bytes > 0) reserve_space(fd.get(), path, reserve_bytes);
  AtomicFile file(std::move(path), std::move(fd));
  // Where direct writes are refused, as by some file systems in memory, the page cache is used.
  FileDescriptor pages;
  if (direct) {
    pages =
        FileDescriptor(::open(file.path_.c_str(), O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC));
  }
  if (pages) file.stream_ = std::make_unique<Stream>(std::move(pages), memory);
  return file;
}

AtomicFile AtomicFile::open_shared(std::string path) {
  FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) {
    const std::string_view hint =
        errno == ENOENT ? "another rank created it: all ranks need one shared file system" : "";
    throw IoError("open", path, -1, errno, hint);
  }
  return {std::move(path), std::move(fd)};
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::exchange(other.temporary_path_, {})),
      fd_(std::move(other.fd_)),
      stream_(std::move(other.stream_)),
      committed_(other.committed_) {}

AtomicFile::~AtomicFile() {
  if (!temporary_path_.empty()) ::unlink(temporary_path_.c_str());
}

void AtomicFile::write(int64_t offset, std::span<const std::byte> bytes) {
  require(!committed_, "write: '", path_, "' is already committed");
  require(!failed_, "write: an earlier write to '", path_, "' has failed");
  failed_ = true;
  write_all(offset, bytes);
  failed_ = false;
}

void AtomicFile::write_all(int64_t offset, std::span<const std::byte> bytes) {
  if (stream_ == nullptr) return write_whole(fd_.get(), path_, offset, bytes);
  while (!bytes.empty()) {
    if (offset != stream_->end) {
      flush();
      stream_->begin = stream_->end = offset;
    }
    const size_t count = std::min(bytes.size(), static_cast<size_t>(stream_->room()));
    std::memcpy(stream_->at(offset), bytes.data(), count);
    stream_->end += static_cast<int64_t>(count);
    offset += static_cast<int64_t>(count);
    bytes = bytes.subspan(count);
    if (stream_->room() == 0) flush();
  }
}

// Parts of pages through the page cache, since what comes before or behind may follow. A cached
// write may bring in more than its page: none goes on beside a direct one, so buffers are written
// one after the other. The next one is at hand when one is done: the disk does not wait.
void AtomicFile::flush() {
  Stream& stream = *stream_;
  if (stream.begin == stream.end) return;
  const int64_t first = std::min((stream.begin + kPage - 1) / kPage * kPage, stream.end);
  const int64_t last = std::max(stream.end / kPage * kPage, first);
  auto write = [before = stream.under_way, cached = fd_.get(), direct = stream.direct.get(),
                path = path_, begin = stream.begin, head = stream.part(stream.begin, first), first,
                pages = stream.part(first, last), last,
                tail = stream.part(last, stream.end)]() mutable {
    if (before.valid()) before.get();
    before = {};  // a thread would be kept for each buffer so far
    write_whole(cached, path, begin, head);
    write_whole(cached, path, last, tail);
    write_pages(direct, cached, path, first, pages);
  };
  const std::shared_future<void> before = std::move(stream.under_way);
  try {
    stream.under_way = std::async(std::launch::async, write).share();
  } catch (const std::system_error&) {  // no more threads
    write();
  }
  std::swap(stream.buffer, stream.other);
  stream.begin = stream.end;
  if (before.valid()) before.get();  // the write from the buffer that is filled next
}

void AtomicFile::commit() {
  require(!committed_, "commit: '", path_, "' is already committed");
  require(!failed_, "commit: a write to '", path_, "' has failed, or the sync");
  failed_ = true;
  if (stream_ != nullptr) {
    flush();
    if (stream_->under_way.valid()) stream_->under_way.get();
  }
  // A failed fsync is final: the kernel may have dropped the pages, a second call would lie.
  if (::fsync(fd_.get()) != 0) throw IoError("sync", path_, -1, errno);
  failed_ = false;
  committed_ = true;
  if (temporary_path_.empty()) return;  // shared
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    throw IoError("rename a complete file to", path_, -1, errno);
  }
  temporary_path_.clear();
  sync_folder(parent_folder(path_));
}

void write_file_atomically(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(0, std::as_bytes(std::span(content)));
  file.commit();
}

AtomicFolder::AtomicFolder(std::string target) : target_(std::move(target)) {
  while (target_.size() > 1 && target_.back() == '/') target_.pop_back();
  for (int attempt = 0;; ++attempt) {
    temporary_path_ = temporary_name(target_);
    if (::mkdir(temporary_path_.c_str(), 0777) == 0) return;
    if (errno != EEXIST || attempt == 100) throw IoError("create folder", target_, -1, errno);
  }
}

AtomicFolder::AtomicFolder(AtomicFolder&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_path_(std::exchange(other.temporary_path_, {})) {}

AtomicFolder::~AtomicFolder() {
  if (!temporary_path_.empty()) remove_folder(temporary_path_);
}

void AtomicFolder::commit(bool replace) {
  require(!temporary_path_.empty(), "commit: '", target_, "' is already committed");
  // From here on the folder is never deleted: it is complete, even if the system refuses the
  // rename.
  const std::string fresh = std::exchange(temporary_path_, {});
  std::string old;
  try {
    sync_folder(fresh);
  } catch (const IoError& error) {
    throw IoError("sync folder", target_, -1, error.error_number(), kept_in(fresh));
  }
  // Plain rename takes the place of nothing and of an empty folder.
  if (::rename(fresh.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    const bool is_there = error == ENOTEMPTY || error == EEXIST;
    if ((is_there && !replace) || error == ENOTDIR) {  // the caller's mistake
      remove_folder(fresh);
      throw IoError("create folder", target_, -1, is_there ? EEXIST : error);
    }
    if (!is_there) throw IoError("create folder", target_, -1, error, kept_in(fresh));
    // Network file systems know no exchange.
    old = ::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0
              ? fresh
              : replace_in_two_steps(fresh, target_);
  }
  try {
    sync_folder(parent_folder(target_));
  } catch (const IoError& error) {
    if (old.empty()) throw;
    throw IoError("sync the folder of", target_, -1, error.error_number(),
                  str("the new folder is there, and the old one kept as '", old, "'"));
  }
  if (!old.empty()) remove_folder(old);
}

}  // namespace zinc::files
