// offload/operation.h: the state of one transfer, between the caller and the workers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "offload/storage.h"

namespace zinc::offload {

using Clock = std::chrono::steady_clock;

// What the workers of a storage, its transfers and their handles know of the disk.
struct Progress {
  std::atomic<Clock::rep> last{0};  // when a block last came back
  void mark() { last = Clock::now().time_since_epoch().count(); }

  // A handle went while its transfer was hung: nothing is given to the disk any more, because
  // nobody keeps file and memory.
  std::atomic<bool> given_up{false};
  // Sets given_up and waits for the workers that are giving, but not for long: the system may hang
  // there too.
  void give_up() noexcept;

  // A worker's while it gives to the disk, or reads the memory of a transfer.
  class Giving {
   public:
    explicit Giving(Progress& progress) : progress_(progress) { ++progress_.num_giving_; }
    ~Giving() { --progress_.num_giving_; }
    Giving(const Giving&) = delete;
    Giving& operator=(const Giving&) = delete;
    // False: it must not.
    bool is_allowed() const { return !progress_.given_up; }

   private:
    Progress& progress_;
  };

 private:
  // Sequentially consistent, as given_up is: a worker counts itself before it looks at given_up,
  // and give_up() sets that before it looks at the count.
  std::atomic<int> num_giving_{0};
};

class IoHandle::Operation {
 public:
  Operation(IoKind kind, const File& file, int64_t offset, int64_t bytes,
            std::chrono::milliseconds deadline, std::shared_ptr<Progress> progress)
      : kind_(kind),
        path_(file.path()),
        fd_(file.fd()),
        alignment_(file.alignment()),
        offset_(offset),
        bytes_(bytes),
        bytes_left_(bytes),
        deadline_(deadline),
        started_(Clock::now()),
        progress_(std::move(progress)) {}

  IoKind kind() const { return kind_; }
  // Of the file, which may be gone where the transfer was given up.
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  int64_t alignment() const { return alignment_; }

  // For the workers: `bytes` of it are over. The first error is kept.
  void finish(int64_t bytes);
  void fail(const std::exception_ptr& error, int64_t bytes);
  bool has_failed() const { return failed_; }

  // Before it is given to workers: each block is to be added, before its bytes are finished.
  void expect_checksums(int64_t block_bytes);
  // Of the whole block that lies at `offset`.
  void add_checksum(int64_t offset, uint32_t crc);
  bool expects_checksums() const { return !checksums_.empty(); }
  uint32_t crc32c() const;  // once it is over, and well

  bool query();
  int64_t over_ns() const { return over_ns_; }  // steady clock; 0 until it is over
  // Until it is over or, after the deadline, given up.
  void wait_or_give_up() noexcept;
  void wait();

 private:
  Clock::time_point limit() const;
  // Waits until it is over; false: the deadline has passed.
  bool is_over_in_time(std::unique_lock<std::mutex>& lock);
  const IoKind kind_;
  const std::string path_;
  const int fd_;
  const int64_t alignment_;
  const int64_t offset_;
  const int64_t bytes_;
  int64_t block_bytes_ = 0;          // of a checksum, but for the last
  std::vector<uint32_t> checksums_;  // by block; empty: none are made
  std::mutex mutex_;
  std::condition_variable over_;
  int64_t bytes_left_;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
  std::atomic<int64_t> over_ns_{0};
  const std::chrono::milliseconds deadline_;
  const Clock::time_point started_;
  const std::shared_ptr<Progress> progress_;
};

}  // namespace zinc::offload
