// kernels/cuda/random_counter.h: the part of a random key that lies on the device.
//
// Work that is recorded and launched again (a CUDA graph) repeats the arguments that a kernel took
// by value. So a kernel that draws random numbers may be told where key.counter_high lies instead:
// it is read when the kernel runs.
#pragma once

#include <cstdint>

#include "core/view.h"

namespace zinc::kernels::cuda {

// The counter's address for a kernel; null where there is no counter.
inline const uint64_t* counter_of(const ConstView& counter) {
  return counter ? reinterpret_cast<const uint64_t*>(counter.data_as<int64_t>()) : nullptr;
}

}  // namespace zinc::kernels::cuda
