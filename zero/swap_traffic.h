// zero/swap_traffic.h: bytes that a rank has moved between host memory and the disk.
#pragma once

#include <cstdint>

namespace zinc::zero {

struct SwapTraffic {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  SwapTraffic operator+(const SwapTraffic& other) const {
    return {bytes_read + other.bytes_read, bytes_written + other.bytes_written};
  }
  SwapTraffic operator-(const SwapTraffic& other) const {
    return {bytes_read - other.bytes_read, bytes_written - other.bytes_written};
  }
  friend bool operator==(const SwapTraffic&, const SwapTraffic&) = default;
};

}  // namespace zinc::zero
