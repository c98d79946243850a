#include "offload/operation.h"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/trace.h"

namespace zinc::offload {
namespace {

// Beyond the deadline: a call of the system that takes requests returns long before.
constexpr std::chrono::milliseconds kLongestGiving{200};

// How long a wait sleeps at a time.
constexpr std::chrono::milliseconds kTurn{1000};

}  // namespace

void Progress::give_up() noexcept {
  given_up = true;
  const auto limit = Clock::now() + kLongestGiving;
  while (num_giving_ > 0 && Clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void IoHandle::Operation::finish(int64_t bytes) { fail(nullptr, bytes); }

void IoHandle::Operation::fail(const std::exception_ptr& error, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (error != nullptr && error_ == nullptr) {
    error_ = error;
    failed_ = true;
  }
  bytes_left_ -= bytes;
  if (bytes_left_ != 0) return;
  over_ns_ = TraceRecorder::now_ns();
  over_.notify_all();
}

void IoHandle::Operation::expect_checksums(int64_t block_bytes) {
  block_bytes_ = block_bytes;
  checksums_.resize(static_cast<size_t>((bytes_ + block_bytes - 1) / block_bytes));
}

// Workers have different blocks; the mutex of finish() makes the checksums visible.
void IoHandle::Operation::add_checksum(int64_t offset, uint32_t crc) {
  checksums_[static_cast<size_t>((offset - offset_) / block_bytes_)] = crc;
}

uint32_t IoHandle::Operation::crc32c() const {
  if (checksums_.empty()) return 0;
  const int64_t rest = bytes_ - (static_cast<int64_t>(checksums_.size()) - 1) * block_bytes_;
  const Crc32cJoin join(block_bytes_);
  uint32_t sum = checksums_.front();
  for (size_t i = 1; i + 1 < checksums_.size(); ++i) sum = join(sum, checksums_[i]);
  return checksums_.size() == 1 ? sum : Crc32cJoin(rest)(sum, checksums_.back());
}

bool IoHandle::Operation::query() {
  const std::lock_guard lock(mutex_);
  return bytes_left_ == 0;
}

Clock::time_point IoHandle::Operation::limit() const {
  return std::max(started_, Clock::time_point(Clock::duration(progress_->last.load()))) + deadline_;
}

// A process that was stopped (Ctrl-Z, a frozen group) is not a disk that hangs: its workers get a
// moment to see what came meanwhile, and what this thread overslept does not count.
bool IoHandle::Operation::is_over_in_time(std::unique_lock<std::mutex>& lock) {
  const auto moment = Clock::now() + std::min<Clock::duration>(deadline_, kTurn);
  Clock::duration overslept{0};
  while (bytes_left_ != 0) {
    const auto now = Clock::now();
    const auto end = std::max(limit() + overslept, moment);
    if (now >= end) return false;
    const auto turn = std::min(end, now + kTurn);
    over_.wait_until(lock, turn, [this] { return bytes_left_ == 0; });
    const auto late = Clock::now() - turn;
    if (late > kTurn) overslept += late;
  }
  return true;
}

void IoHandle::Operation::wait_or_give_up() noexcept {
  std::unique_lock lock(mutex_);
  if (is_over_in_time(lock)) return;
  lock.unlock();
  progress_->give_up();
}

void IoHandle::Operation::wait() {
  std::unique_lock lock(mutex_);
  if (!is_over_in_time(lock)) {
    throw IoError(kind_ == IoKind::read ? "read" : "write", path_, offset_, ETIMEDOUT,
                  str("the disk has not answered for ", deadline_.count(), " ms"));
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
}

IoHandle& IoHandle::operator=(IoHandle&& other) noexcept {
  IoHandle taken(std::move(other));
  operation_.swap(taken.operation_);
  return *this;
}

IoHandle::~IoHandle() {
  if (operation_ != nullptr) operation_->wait_or_give_up();
}

int64_t IoHandle::over_ns() const { return operation_ == nullptr ? 0 : operation_->over_ns(); }

bool IoHandle::query() const { return operation_ == nullptr || operation_->query(); }

void IoHandle::wait() {
  if (operation_ != nullptr) operation_->wait();
}

uint32_t IoHandle::crc32c() const { return operation_ == nullptr ? 0 : operation_->crc32c(); }

}  // namespace zinc::offload
