// kernels/cost.h: what an operation has to move and compute, whatever the implementation.
#pragma once

#include <cstdint>

#include "core/view.h"

namespace zinc::kernels {

// Compulsory traffic: every input byte read once, every output byte written once, accumulated
// outputs read and written. Flops count a multiply-add as two; masked-out work of causal attention
// does not count. Used by the bench, the planner and the MFU figure.
struct Cost {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t flops = 0;

  int64_t bytes() const { return bytes_read + bytes_written; }
  friend Cost operator+(const Cost& a, const Cost& b) {
    return {a.bytes_read + b.bytes_read, a.bytes_written + b.bytes_written, a.flops + b.flops};
  }
};

// Bytes of an argument that may be absent: 0 then.
inline int64_t optional_bytes(const ConstView& view) { return view ? view.bytes() : 0; }

}  // namespace zinc::kernels
