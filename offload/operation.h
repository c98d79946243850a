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

// The state that workers, transfers and handles of a storage share.
struct Progress {
  std::atomic<Clock::rep> last{0};  // when a block last came back
  void mark() { last = Clock::now().time_since_epoch().count(); }

  // Set when a handle was destroyed while its transfer hung. Nothing is given to the disk any more,
  // because file and memory may be gone.
  std::atomic<bool> given_up{false};
  // Sets given_up, and waits a short time for workers that are giving requests to the disk. The
  // wait is bounded because the system may hang there too.
  void give_up() noexcept;

  // Held by a worker while it gives requests to the disk, or reads a transfer's memory.
  class Giving {
   public:
    explicit Giving(Progress& progress) : progress_(progress) { ++progress_.num_giving_; }
    ~Giving() { --progress_.num_giving_; }
    Giving(const Giving&) = delete;
    Giving& operator=(const Giving&) = delete;
    // False: the worker must not go on.
    bool is_allowed() const { return !progress_.given_up; }

   private:
    Progress& progress_;
  };

 private:
  // Sequentially consistent, like given_up. A worker counts itself before it reads given_up;
  // give_up() sets given_up before it reads the count.
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
  // Copies of the file's facts. The file may be gone if the transfer was given up.
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  int64_t alignment() const { return alignment_; }

  // Called by workers when `bytes` of the transfer are done or have failed. The first error is
  // kept.
  void finish(int64_t bytes);
  void fail(const std::exception_ptr& error, int64_t bytes);
  bool has_failed() const { return failed_; }

  // Call before workers get the transfer. Each block is then added, before its bytes are finished.
  void expect_checksums(int64_t block_bytes);
  // The CRC of the whole block at `offset`.
  void add_checksum(int64_t offset, uint32_t crc);
  bool expects_checksums() const { return !checksums_.empty(); }
  uint32_t crc32c() const;  // once the transfer is over without an error

  bool query();
  int64_t over_ns() const { return over_ns_; }  // steady clock; 0 until it is over
  // Waits until the transfer is over, or gives up after the deadline.
  void wait_or_give_up() noexcept;
  void wait();

 private:
  Clock::time_point limit() const;
  // Waits until the transfer is over. False: the deadline has passed.
  bool is_over_in_time(std::unique_lock<std::mutex>& lock);
  const IoKind kind_;
  const std::string path_;
  const int fd_;
  const int64_t alignment_;
  const int64_t offset_;
  const int64_t bytes_;
  int64_t block_bytes_ = 0;          // bytes of a checksum's block; the last may have fewer
  std::vector<uint32_t> checksums_;  // by block; empty: no checksums
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
