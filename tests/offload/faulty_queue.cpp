#include "tests/offload/faulty_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

namespace zinc::offload {

FaultyQueue::FaultyQueue(std::unique_ptr<BlockQueue> inner, Faults faults)
    : inner_(std::move(inner)), faults_(std::move(faults)) {}

int64_t FaultyQueue::submit(std::span<BlockIo* const> ios) {
  auto count = static_cast<int64_t>(ios.size());
  if (faults_.admit) count = faults_.admit(count);
  if (count <= 0) return count;
  for (BlockIo* io : ios.first(static_cast<size_t>(count))) start(io);
  return count;
}

void FaultyQueue::start(BlockIo* io) {
  Fate fate;
  if (faults_.fate) fate = faults_.fate(*io);
  if (fate.kind == Fate::Kind::answer || fate.kind == Fate::Kind::lose) {
    done_.push_back({io, fate.kind == Fate::Kind::lose ? io->bytes : fate.value});
    return;
  }
  Pending& pending = pending_.emplace_back(Pending{*io, io, fate});
  if (fate.kind == Fate::Kind::hang) return;
  if (fate.kind == Fate::Kind::shorten) pending.inner.bytes = std::min(io->bytes, fate.value);
  if (fate.kind == Fate::Kind::misdirect) pending.inner.offset += fate.value;
  BlockIo* inner = &pending.inner;
  // Room in the inner queue comes with its completions.
  while (inner_->submit({&inner, 1}) != 1) collect(1, std::chrono::milliseconds(1));
  ++inside_;
}

int64_t FaultyQueue::collect(int64_t at_least, std::chrono::milliseconds timeout) {
  std::array<BlockCompletion, 64> found;
  const int64_t count = inside_ == 0 ? 0 : inner_->reap(at_least, found, timeout);
  for (int64_t i = 0; i < count; ++i) {
    const BlockCompletion& completion = found[static_cast<size_t>(i)];
    const auto at = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
      return &pending.inner == completion.io;
    });
    if (at->fate.kind == Fate::Kind::flip_bit && completion.result > 0) {
      const int64_t bit = at->fate.value % (completion.result * 8);
      at->outer->data[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    }
    done_.push_back({at->outer, completion.result});
    pending_.erase(at);
    --inside_;
  }
  return count;
}

int64_t FaultyQueue::reap(int64_t at_least, std::span<BlockCompletion> out,
                          std::chrono::milliseconds timeout) {
  if (faults_.interrupt) {
    const int64_t error = faults_.interrupt();
    if (error != 0) return error;
  }
  const int64_t missing = at_least - static_cast<int64_t>(done_.size());
  if (missing > 0) collect(std::min(missing, inside_), timeout);
  if (done_.empty() && inside_ == 0 && faults_.is_released) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (faults_.is_released()) {
      for (Pending& pending : pending_) done_.push_back({pending.outer, -EIO});
      pending_.clear();
    }
  }
  // The last that ended is reported first.
  const size_t count = std::min(out.size(), done_.size());
  for (size_t i = 0; i < count; ++i) {
    out[i] = done_.back();
    done_.pop_back();
  }
  return static_cast<int64_t>(count);
}

std::unique_ptr<Storage> make_faulty_storage(const StorageOptions& options,
                                             const std::function<Faults()>& make, bool aio) {
  return std::make_unique<Storage>(options, [make, aio](const StorageOptions& o) {
    auto inner = aio && has_aio() ? make_aio_queue(o.queue_depth) : make_posix_queue();
    return std::make_unique<FaultyQueue>(std::move(inner), make());
  });
}

std::unique_ptr<Storage> make_hung_storage(const StorageOptions& options,
                                           const std::atomic<bool>& released) {
  return make_faulty_storage(
      options,
      [&released] {
        return Faults{.fate = [](const BlockIo&) { return Fate{Fate::Kind::hang}; },
                      .is_released = [&released] { return released.load(); }};
      },
      true);
}

}  // namespace zinc::offload
