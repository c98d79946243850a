// comm/shared/bell.h: a word in shared memory that a thread of any process can sleep on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace zinc::comm {

// A thread that waits for a condition reads the bell, looks at the condition, and sleeps on the
// value that it read. A thread that changes the condition rings afterwards. So no wake-up is lost.
// Ringing costs a system call only when somebody sleeps.
class Bell {
 public:
  uint32_t read() const noexcept { return rings_.load(); }
  void ring() noexcept;
  // Returns when the bell was rung since `seen` was read, after `timeout`, or early.
  void sleep(uint32_t seen, std::chrono::nanoseconds timeout) noexcept;

 private:
  std::atomic<uint32_t> rings_ = 0;
  std::atomic<uint32_t> sleepers_ = 0;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(Bell) == 8);

}  // namespace zinc::comm
