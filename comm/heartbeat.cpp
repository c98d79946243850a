#include "comm/heartbeat.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/error.h"

namespace zinc::comm {
namespace {

constexpr size_t kLineBytes = 160;
constexpr size_t kNumLines = 3;
constexpr size_t kFileBytes = kLineBytes * kNumLines;

std::string path_of(const std::string& directory, int rank) {
  return str(directory, "/rank_", rank, ".heartbeat");
}

// Makes a new file under another name and renames it into place: a reader never sees half of it,
// and a planted link is replaced, not followed.
int create(const std::string& path) {
  const std::string fresh = str(path, ".", ::getpid());
  const int file = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (file < 0) throw IoError("create", fresh, -1, errno);
  int error = ::ftruncate(file, kFileBytes) == 0 ? 0 : errno;
  if (error == 0 && ::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(fresh.c_str());
    ::close(file);
    throw IoError("create", path, -1, error);
  }
  return file;
}

void put_line(char* page, int line, std::string text) {
  text.resize(std::min(text.size(), kLineBytes - 1));
  text.resize(kLineBytes - 1, ' ');
  text += '\n';
  std::memcpy(page + static_cast<size_t>(line) * kLineBytes, text.data(), kLineBytes);
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(" \n") + 1);
  return line;
}

}  // namespace

Heartbeat::Heartbeat(const std::string& directory, int world_rank, int world_size)
    : directory_(directory), world_size_(world_size) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw IoError("create the directory", directory, -1, error.value());
  const std::string path = path_of(directory, world_rank);
  const int file = create(path);
  void* page = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int map_error = errno;
  ::close(file);
  if (page == MAP_FAILED) throw IoError("map", path, -1, map_error);
  page_ = std::shared_ptr<char>(static_cast<char*>(page),
                                [](char* mapped) { ::munmap(mapped, kFileBytes); });
  call_it(str("rank ", world_rank));
  put_line(page_.get(), 1, "issued    nothing");
  put_line(page_.get(), 2, "completed nothing");
}

void Heartbeat::call_it(std::string_view name) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    put_line(page_.get(), 0, str(name, " of ", world_size_, ", process ", ::getpid()));
  } catch (...) {  // out of memory: the work itself will say so
  }
}

void Heartbeat::issued(const Terms& terms, std::string_view group) noexcept {
  write(1, "issued    ", terms, group);
}

void Heartbeat::completed(const Terms& terms, std::string_view group) noexcept {
  write(2, "completed ", terms, group);
}

void Heartbeat::write(int line, std::string_view text, const Terms& terms,
                      std::string_view group) noexcept {
  try {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    std::string fraction = str(1000 + ms % 1000);
    fraction[0] = '.';
    const std::lock_guard lock(mutex_);
    put_line(page_.get(), line, str(text, terms, " of ", group, ", at ", ms / 1000, fraction));
  } catch (...) {  // out of memory: the work itself will say so
  }
}

std::string Heartbeat::table() const {
  std::string text;
  for (int rank = 0; rank < world_size_; ++rank) text += lines_of(rank);
  return text;
}

std::string Heartbeat::lines_of(int rank) const {
  const std::string lines = read_heartbeat(directory_, rank);
  return lines.empty() ? str("rank ", rank, ": no heartbeat file\n") : lines;
}

// A thread reads the files, so that the caller can stop waiting; nothing can end that thread.
std::string heartbeats_for_error(const std::shared_ptr<const Heartbeat>& heartbeat) {
  if (heartbeat == nullptr) return "";
  try {
    struct Reading {
      std::mutex mutex;
      std::condition_variable ended;
      std::string text;  // read so far
      bool is_over = false;
    };
    const auto reading = std::make_shared<Reading>();
    std::thread([reading, heartbeat] {
      try {
        for (int rank = 0; rank < heartbeat->world_size(); ++rank) {
          const std::string lines = heartbeat->lines_of(rank);
          const std::lock_guard lock(reading->mutex);
          reading->text += lines;
        }
      } catch (...) {  // out of memory: what is there has to do
      }
      const std::lock_guard lock(reading->mutex);
      reading->is_over = true;
      reading->ended.notify_all();
    }).detach();
    std::unique_lock lock(reading->mutex);
    const bool is_whole =
        reading->ended.wait_for(lock, kHeartbeatReadTime, [&] { return reading->is_over; });
    return str("\nheartbeats:\n", reading->text,
               is_whole ? "" : "and no more, as their folder does not answer\n");
  } catch (const std::exception&) {  // not even a thread can be had: the text goes without them
    return "\nheartbeats: cannot be read";
  }
}

std::string read_heartbeat(const std::string& directory, int world_rank) {
  std::ifstream file(path_of(directory, world_rank));
  std::string text;
  for (std::string line; std::getline(file, line);) text += trimmed(line) + "\n";
  return text;
}

}  // namespace zinc::comm
