#include "offload/operation.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/error.h"

namespace zinc::offload {

void IoHandle::Operation::finish(int64_t bytes) { fail(nullptr, bytes); }

void IoHandle::Operation::fail(const std::exception_ptr& error, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (error != nullptr && error_ == nullptr) {
    error_ = error;
    failed_ = true;
  }
  bytes_left_ -= bytes;
  if (bytes_left_ == 0) over_.notify_all();
}

bool IoHandle::Operation::query() {
  const std::lock_guard lock(mutex_);
  return bytes_left_ == 0;
}

void IoHandle::Operation::wait_until_over() noexcept {
  std::unique_lock lock(mutex_);
  over_.wait(lock, [this] { return bytes_left_ == 0; });
}

void IoHandle::Operation::wait() {
  std::unique_lock lock(mutex_);
  while (bytes_left_ != 0) {
    const Clock::time_point last{Clock::duration(progress_->last.load())};
    const Clock::time_point limit = std::max(started_, last) + deadline_;
    if (Clock::now() >= limit) {
      throw IoError(kind_ == IoKind::read ? "read" : "write", file_->path(), offset_, ETIMEDOUT,
                    concat("the disk has not answered for ", deadline_.count(), " ms"));
    }
    over_.wait_until(lock, limit, [this] { return bytes_left_ == 0; });
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
}

IoHandle& IoHandle::operator=(IoHandle&& other) noexcept {
  IoHandle taken(std::move(other));
  operation_.swap(taken.operation_);
  return *this;
}

IoHandle::~IoHandle() {
  if (operation_ != nullptr) operation_->wait_until_over();
}

bool IoHandle::query() const { return operation_ == nullptr || operation_->query(); }

void IoHandle::wait() {
  if (operation_ != nullptr) operation_->wait();
}

}  // namespace zinc::offload
