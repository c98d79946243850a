#include "comm/shared/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace zinc::comm {

void Bell::ring() noexcept {
  rings_.fetch_add(1);
  // Both sides use sequentially consistent order: either the sleeper is seen here, or the kernel
  // sees the new count and does not put it to sleep.
  if (sleepers_.load() != 0) {
    ::syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Bell::sleep(uint32_t seen, std::chrono::nanoseconds timeout) noexcept {
  const auto nanoseconds = timeout.count() < 0 ? 0 : timeout.count();
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(nanoseconds / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(nanoseconds % 1'000'000'000);
  sleepers_.fetch_add(1);
  // Every outcome (woken, timed out, interrupted, the word has changed) sends the caller back to
  // its condition.
  ::syscall(SYS_futex, &rings_, FUTEX_WAIT, seen, &limit, nullptr, 0);
  sleepers_.fetch_sub(1);
}

}  // namespace zinc::comm
