// offload/swap_traffic.h: how many bytes a rank has moved between host memory and the disk, and
// how long that took.
#pragma once

#include <cstdint>

namespace zinc::offload {

struct SwapTraffic {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  // Times of SwapClock; both 0 on a meta device.
  int64_t busy_ns = 0;
  int64_t stall_ns = 0;

  SwapTraffic operator+(const SwapTraffic& other) const {
    return {bytes_read + other.bytes_read, bytes_written + other.bytes_written,
            busy_ns + other.busy_ns, stall_ns + other.stall_ns};
  }
  SwapTraffic operator-(const SwapTraffic& other) const {
    return {bytes_read - other.bytes_read, bytes_written - other.bytes_written,
            busy_ns - other.busy_ns, stall_ns - other.stall_ns};
  }
  // Compares bytes alone: times differ from run to run.
  friend bool operator==(const SwapTraffic& a, const SwapTraffic& b) {
    return a.bytes_read == b.bytes_read && a.bytes_written == b.bytes_written;
  }
};

}  // namespace zinc::offload
