// offload/operation.h: the state of one transfer, between the caller and the workers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "offload/storage.h"

namespace zinc::offload {

using Clock = std::chrono::steady_clock;

// When a block last came back, over all workers of a storage.
struct Progress {
  std::atomic<Clock::rep> last{0};
  void mark() { last = Clock::now().time_since_epoch().count(); }
};

class IoHandle::Operation {
 public:
  Operation(IoKind kind, const File& file, int64_t offset, int64_t bytes,
            std::chrono::milliseconds deadline, std::shared_ptr<const Progress> progress)
      : kind_(kind),
        file_(&file),
        offset_(offset),
        bytes_left_(bytes),
        deadline_(deadline),
        started_(Clock::now()),
        progress_(std::move(progress)) {}

  IoKind kind() const { return kind_; }
  const File& file() const { return *file_; }

  // For the workers: `bytes` of it are over. The first error is kept.
  void finish(int64_t bytes);
  void fail(const std::exception_ptr& error, int64_t bytes);
  bool has_failed() const { return failed_; }

  bool query();
  void wait_until_over() noexcept;
  void wait();

 private:
  const IoKind kind_;
  const File* const file_;
  const int64_t offset_;
  std::mutex mutex_;
  std::condition_variable over_;
  int64_t bytes_left_;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
  const std::chrono::milliseconds deadline_;
  const Clock::time_point started_;
  const std::shared_ptr<const Progress> progress_;
};

}  // namespace zinc::offload
