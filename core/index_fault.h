// core/index_fault.h: a bad index that a kernel on a GPU met, on its way to the host.
#pragma once

#include <cstdint>

#include "core/stream.h"

namespace zinc {

// A device's record, in pinned memory that its kernels write. The first kernel to meet a bad index
// since the program began takes it; once it is complete, every later synchronize() and event wait
// of the device's streams throws InvalidArgument "<op>: <name>[<place>] is <index>, outside [0,
// <rows>)". Where one launch meets several, it is any of them.
struct IndexFault {
  static constexpr uint32_t kTaken = 1, kComplete = 2;

  uint32_t state = 0;  // the last that a kernel writes
  const char* op = nullptr;
  const char* name = nullptr;  // string literals, for the host
  int64_t place = 0, index = 0, rows = 0;
};

// The record of the stream's device, valid as long as the stream; null unless `stream` is a CUDA
// stream. Only in builds with CUDA.
IndexFault* index_fault_of(StreamRef stream);

}  // namespace zinc
