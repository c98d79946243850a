#include "train/metrics/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "files/atomic_file.h"
#include "files/input_file.h"

namespace zinc::train {
namespace {

constexpr std::string_view kMark = ".zinc-run";
constexpr std::string_view kStarting = "starting";  // the mark's text until keep(); then: none
constexpr std::string_view kBusy = "another run is writing there; choose another folder";

std::string mark_of(const std::string& folder) { return str(folder, '/', kMark); }

// True while `path` is the name of the open file.
bool is_file(int fd, const std::string& path) {
  struct stat held = {};
  struct stat named = {};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

// A new folder's mark, locked before it has its name: one without its lock is that of a dead run.
files::FileDescriptor make_mark(const std::string& folder, const std::string& shown) {
  const std::string unnamed = mark_of(folder) + ".new";
  files::FileDescriptor mark(
      ::open(unnamed.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0666));
  if (!mark) throw IoError("make the mark of run folder", shown, -1, errno);
  if (::flock(mark.get(), LOCK_EX | LOCK_NB) != 0) {
    throw IoError("lock run folder", shown, -1, errno);
  }
  if (::write(mark.get(), kStarting.data(), kStarting.size()) !=
      static_cast<ssize_t>(kStarting.size())) {
    throw IoError("write the mark of run folder", shown, -1, errno);
  }
  if (::rename(unnamed.c_str(), mark_of(folder).c_str()) != 0) {
    throw IoError("name the mark of run folder", shown, -1, errno);
  }
  return mark;
}

// The locked mark of a folder that is there. `shown` is the folder's name in messages.
files::FileDescriptor lock_mark(const std::string& folder, const std::string& shown) {
  files::FileDescriptor mark(::open(mark_of(folder).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!mark) throw IoError("open the mark of run folder", shown, -1, errno);
  if (::flock(mark.get(), LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    throw IoError("lock run folder", shown, -1, error, error == EWOULDBLOCK ? kBusy : "");
  }
  // Whoever replaced the folder between the two calls has left this lock on a file without a name.
  if (!is_file(mark.get(), mark_of(folder))) {
    throw IoError("lock run folder", shown, -1, EWOULDBLOCK, kBusy);
  }
  return mark;
}

// Whether a run was killed in the folder before its first step: its mark says so, and there are no
// files that a step writes.
bool has_no_step(const std::string& folder) {
  constexpr int64_t kMostMarkBytes = 64;
  std::error_code ignored;
  try {
    if (files::read_text_file(mark_of(folder), kMostMarkBytes) != kStarting) return false;
  } catch (const DataError&) {  // the mark was removed meanwhile
    return false;
  }
  const std::string figures = folder + "/metrics.jsonl";
  if (files::file_exists(figures) && std::filesystem::file_size(figures, ignored) != 0)
    return false;
  return !files::folder_exists(folder + "/checkpoints") &&
         !files::folder_exists(folder + "/final") && !files::folder_exists(folder + "/best");
}

bool is_empty_folder(const std::string& path) {
  std::error_code error;
  const bool empty = std::filesystem::is_empty(path, error);
  if (error) throw IoError("read folder", path, -1, error.value());
  return empty;
}

// The folder that a run was making when it was killed: a live one holds the lock in it, or has not
// made that yet.
void remove_left(const files::TemporaryName& left) {
  const files::FileDescriptor mark(
      ::open(mark_of(left.path).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  const bool is_live =
      mark ? ::flock(mark.get(), LOCK_EX | LOCK_NB) != 0 : ::kill(left.process, 0) == 0;
  std::error_code ignored;
  if (!is_live) std::filesystem::remove_all(left.path, ignored);
}

}  // namespace

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::move(other.lock_)),
      staged_(std::move(other.staged_)),
      old_lock_(std::move(other.old_lock_)),
      kept_(std::exchange(other.kept_, true)) {}

RunFolder::~RunFolder() {
  // A staged folder removes itself. If another run has replaced the folder meanwhile, the mark
  // there is not this one.
  if (kept_ || staged_ || !is_file(lock_.get(), mark_of(path_))) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

RunFolder RunFolder::create(std::string path, bool force) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  files::create_folders(files::parent_folder(path));
  for (const files::TemporaryName& left : files::temporaries_in(files::parent_folder(path))) {
    if (left.target == files::file_name(path)) remove_left(left);
  }

  files::FileDescriptor old_lock;
  if (files::folder_exists(path) && !is_empty_folder(path)) {
    if (!files::file_exists(mark_of(path))) {
      throw IoError("create run folder", path, -1, EEXIST,
                    "it holds something that is not a run of zinc; choose another folder");
    }
    const auto require_replaceable = [&] {
      if (force || has_no_step(path)) return;
      throw IoError("create run folder", path, -1, EEXIST,
                    "it holds a run; --resume auto goes on with it, --force replaces it (in a "
                    "program: .resume = \"auto\", .force = true); or choose another folder");
    };
    require_replaceable();
    old_lock = lock_mark(path, path);
    require_replaceable();  // the old run may have trained meanwhile
  }

  files::AtomicFolder folder(path);
  RunFolder run(path, make_mark(folder.path(), path));
  if (old_lock) {
    run.staged_.emplace(std::move(folder));
    run.old_lock_ = std::move(old_lock);
  } else {
    folder.commit(/*replace=*/false);
  }
  return run;
}

bool RunFolder::is_run(const std::string& path) { return files::file_exists(mark_of(path)); }

RunFolder RunFolder::reopen(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  RunFolder run(path, lock_mark(path, path));
  run.kept_ = true;
  // Only this run writes here, so temporary files are left over from a run that was killed.
  std::error_code ignored;
  for (const files::TemporaryName& left : files::temporaries_in(path)) {
    std::filesystem::remove_all(left.path, ignored);
  }
  return run;
}

void RunFolder::keep() {
  if (::ftruncate(lock_.get(), 0) != 0 || ::fsync(lock_.get()) != 0) {
    throw IoError("write the mark of run folder", path_, -1, errno);
  }
  if (staged_) {
    staged_->commit(/*replace=*/true);
    staged_.reset();
    old_lock_.reset();
  }
  kept_ = true;
}

std::string RunFolder::place_of(const std::string& path) const {
  namespace fs = std::filesystem;
  if (!staged_) return path;
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(fs::absolute(path_, error), error);
  const fs::path asked = fs::weakly_canonical(fs::absolute(path, error), error);
  const fs::path inside = asked.lexically_relative(folder);
  if (error || inside.empty() || *inside.begin() == "..") return path;
  return (fs::path(place()) / inside).lexically_normal().string();
}

}  // namespace zinc::train
