// offload/swap_clock.h: measures how long swapping took, over one or several swap spaces.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zinc::offload {

// Times in ns of the steady clock. One thread.
class SwapClock {
 public:
  // Adds a transfer that was under way from `begin` to `over`, and was waited for from `wait_begin`
  // on. Call in the order of waits. If an earlier transfer is waited for later, the time in which
  // it alone was under way does not count.
  void add(int64_t begin, int64_t over, int64_t wait_begin) {
    busy_ns_ += std::max<int64_t>(over - std::max(begin, busy_until_), 0);
    busy_until_ = std::max(busy_until_, over);
    stall_ns_ += std::max<int64_t>(over - wait_begin, 0);
  }
  int64_t busy_ns() const { return busy_ns_; }    // at least one transfer was under way
  int64_t stall_ns() const { return stall_ns_; }  // the issuing thread waited for one

 private:
  int64_t busy_ns_ = 0;
  int64_t stall_ns_ = 0;
  int64_t busy_until_ = 0;
};

}  // namespace zinc::offload
