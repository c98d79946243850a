#include "offload/storage_worker.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "core/crc32c.h"
#include "core/error.h"

namespace zinc::offload {
namespace {

// Refusals in a row, without progress, before a request fails: with the pauses about two seconds.
constexpr int kMostRefusals = 12;
constexpr std::chrono::milliseconds kLongestPause{200};
constexpr std::chrono::milliseconds kReapSlice{200};
constexpr size_t kChecksumPiece = size_t{1} << 20;  // far below what give_up() waits for

std::chrono::milliseconds pause_after(int refusals) {
  return std::min(kLongestPause, std::chrono::milliseconds(1 << std::min(refusals, 10)));
}

}  // namespace

Storage::Worker::Worker(const StorageOptions& options, std::unique_ptr<BlockQueue> queue,
                        std::shared_ptr<Progress> progress)
    : options_(options),
      queue_(std::move(queue)),
      progress_(std::move(progress)),
      slots_(static_cast<size_t>(options.queue_depth)),
      completions_(slots_.size()) {
  static_assert(offsetof(Slot, io) == 0, "slot_of()");
  for (Slot& slot : slots_) free_.push_back(&slot);
  thread_ = std::thread([this] {
    run();
    leave();
  });
}

Storage::Worker::~Worker() {
  if (thread_.joinable()) thread_.join();
}

void Storage::Worker::end(std::unique_ptr<Worker> worker) {
  std::unique_lock lock(worker->mutex_);
  worker->stop_ = true;
  worker->given_.notify_one();
  const auto over = [&] { return worker->ended_; };
  while (!over() && !worker->progress_->given_up) {
    worker->has_ended_.wait_for(lock, kReapSlice, over);
  }
  if (over() || worker->has_ended_.wait_for(lock, 3 * kReapSlice, over)) {
    lock.unlock();
    return;
  }
  worker->thread_.detach();
  worker->left_alone_ = true;
  lock.unlock();
  static_cast<void>(worker.release());
}

void Storage::Worker::leave() {
  queue_.reset();  // waits for what is in flight, perhaps for ever
  std::unique_lock lock(mutex_);
  ended_ = true;
  has_ended_.notify_all();
  if (!left_alone_) return;
  lock.unlock();
  delete this;
}

void Storage::Worker::give(Transfer part) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(part));
  }
  given_.notify_one();
}

void Storage::Worker::run() {
  while (take_parts()) {
    if (progress_->given_up) {
      if (broken_ == 0) broken_ = ETIMEDOUT;
      const std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    cut_blocks();
    submit_ready();
    if (in_flight_ > 0) reap();
  }
}

bool Storage::Worker::take_parts() {
  std::unique_lock lock(mutex_);
  if (parts_.empty() && ready_.empty() && in_flight_ == 0) {
    given_.wait(lock, [this] { return stop_ || !inbox_.empty(); });
    if (inbox_.empty()) return false;
  }
  while (!inbox_.empty()) {
    parts_.push_back(std::move(inbox_.front()));
    inbox_.pop_front();
  }
  return true;
}

void Storage::Worker::cut_blocks() {
  while (!parts_.empty()) {
    Transfer& part = parts_.front();
    if (part.operation->has_failed() || broken_ != 0) {
      std::exception_ptr error;
      if (broken_ != 0) {
        error = std::make_exception_ptr(
            IoError("use the queue of", part.operation->path(), part.offset, broken_));
      }
      part.operation->fail(error, part.bytes);
      parts_.pop_front();
      continue;
    }
    if (free_.empty()) return;
    Slot& slot = *free_.back();
    free_.pop_back();
    const int64_t bytes = std::min(part.bytes, options_.block_size);
    slot = {.io = {.kind = part.operation->kind(),
                   .fd = part.operation->fd(),
                   .data = part.data,
                   .bytes = bytes,
                   .offset = part.offset},
            .operation = part.operation,
            .data = part.data,
            .bytes = bytes,
            .offset = part.offset};
    ready_.push_back(&slot.io);
    part.data += bytes;
    part.offset += bytes;
    part.bytes -= bytes;
    if (part.bytes == 0) parts_.pop_front();
  }
}

void Storage::Worker::drop_failed() {
  std::erase_if(ready_, [this](BlockIo* io) {
    Slot& slot = slot_of(io);
    if (!slot.operation->has_failed()) return false;
    slot.operation->finish(slot.bytes);
    release(slot);
    return true;
  });
}

void Storage::Worker::submit_ready() {
  for (drop_failed(); !ready_.empty(); drop_failed()) {
    const size_t count = options_.single_submit ? 1 : ready_.size();
    batch_.assign(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(count));
    int64_t taken = -ETIMEDOUT;
    {
      const Progress::Giving giving(*progress_);
      if (giving.is_allowed()) taken = queue_->submit(batch_);
    }
    if (taken > 0) {
      ready_.erase(ready_.begin(), ready_.begin() + taken);
      in_flight_ += taken;
      submit_refusals_ = 0;
      continue;
    }
    if (taken == -EINTR) continue;
    if (taken != -EAGAIN && taken != 0) {
      // The system's answer is about the first request.
      Slot& slot = slot_of(ready_.front());
      ready_.pop_front();
      fail(slot, static_cast<int>(-taken), {});
      continue;
    }
    if (in_flight_ > 0) return;  // room comes with completions
    if (++submit_refusals_ > kMostRefusals) {
      Slot& slot = slot_of(ready_.front());
      ready_.pop_front();
      submit_refusals_ = 0;
      fail(slot, EAGAIN, "the system takes no more requests; see fs.aio-max-nr");
      continue;
    }
    std::this_thread::sleep_for(pause_after(submit_refusals_));
  }
}

void Storage::Worker::reap() {
  const int64_t at_least = options_.overlap_events ? 1 : in_flight_;
  const int64_t count = queue_->reap(at_least, completions_, kReapSlice);
  if (count < 0) {
    if (count != -EINTR && count != -EAGAIN) give_up(static_cast<int>(-count));
    return;
  }
  in_flight_ -= count;
  for (int64_t i = 0; i < count; ++i) judge(completions_[static_cast<size_t>(i)]);
}

void Storage::Worker::judge(const BlockCompletion& completion) {
  Slot& slot = slot_of(completion.io);
  const int64_t result = completion.result;
  if (result > slot.io.bytes) {
    fail(slot, EOVERFLOW, "the system reports more bytes than were asked for");
  } else if (result == slot.io.bytes) {
    progress_->mark();
    if (slot.operation->expects_checksums() && !add_checksum(slot)) {
      fail(slot, ETIMEDOUT, "the storage was given up");
      return;
    }
    slot.operation->finish(slot.bytes);
    release(slot);
  } else if (result > 0) {
    resume(slot, result);
  } else if (result == 0) {
    // Nothing, without an error: the file ends here, or the disk is full. Once may be chance.
    const bool read = slot.io.kind == IoKind::read;
    if (slot.refusals == 0) {
      retry(slot, 0);
    } else {
      fail(slot, read ? 0 : ENOSPC, read ? "the file ends before the transfer does" : "");
    }
  } else {
    const int error = static_cast<int>(-result);
    const bool again = error == EAGAIN || error == EINTR;
    const bool reread = error == EIO && slot.io.kind == IoKind::read && !slot.reread;
    slot.reread = slot.reread || reread;
    if (reread || (again && slot.refusals < kMostRefusals)) {
      retry(slot, error);
    } else {
      fail(slot, error, {});
    }
  }
}

// False: the storage was given up, so that the memory may be gone.
bool Storage::Worker::add_checksum(const Slot& slot) {
  std::span<const std::byte> rest(slot.data, static_cast<size_t>(slot.bytes));
  uint32_t crc = 0;
  while (!rest.empty()) {
    const auto piece = rest.first(std::min(rest.size(), kChecksumPiece));
    const Progress::Giving giving(*progress_);
    if (!giving.is_allowed()) return false;
    crc = crc32c(piece, crc);
    rest = rest.subspan(piece.size());
  }
  slot.operation->add_checksum(slot.offset, crc);
  return true;
}

// Direct transfers go on at an aligned place: bytes after it are transferred once more.
void Storage::Worker::resume(Slot& slot, int64_t transferred) {
  const int64_t alignment = slot.operation->alignment();
  const int64_t kept = transferred / alignment * alignment;
  if (kept == 0) {
    if (slot.refusals >= kMostRefusals) {
      fail(slot, slot.io.kind == IoKind::read ? 0 : ENOSPC, "the transfer does not get on");
      return;
    }
    retry(slot, 0);
    return;
  }
  progress_->mark();
  slot.io.data += kept;
  slot.io.offset += kept;
  slot.io.bytes -= kept;
  slot.refusals = 0;
  ready_.push_back(&slot.io);
}

void Storage::Worker::retry(Slot& slot, int error) {
  ++slot.refusals;
  if (error == EAGAIN) std::this_thread::sleep_for(pause_after(slot.refusals));
  ready_.push_back(&slot.io);
}

void Storage::Worker::release(Slot& slot) {
  slot.operation.reset();
  free_.push_back(&slot);
}

void Storage::Worker::fail(Slot& slot, int error, const std::string& hint) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const std::string& path = slot.operation->path();
  const std::string cause = full && hint.empty() ? free_space(slot.operation->fd()) : hint;
  slot.operation->fail(
      std::make_exception_ptr(IoError(slot.io.kind == IoKind::read ? "read" : "write", path,
                                      slot.io.offset, error, cause)),
      slot.bytes);
  release(slot);
}

// The queue cannot tell which transfers it has finished: it is ended, which waits for all of them.
void Storage::Worker::give_up(int error) {
  queue_.reset();
  broken_ = error;
  in_flight_ = 0;
  ready_.clear();
  for (Slot& slot : slots_) {
    if (slot.operation != nullptr) fail(slot, error, "the queue of requests broke down");
  }
}

}  // namespace zinc::offload
