// kernels/random_counter.h: the part of a random key that lies on the device.
//
// Work that is recorded and launched again (a CUDA graph) repeats what a kernel took by value. So a
// kernel that draws random numbers may be told where key.counter_high lies instead: it is read when
// the kernel runs.
#pragma once

#include <string_view>

#include "core/error.h"
#include "core/philox.h"
#include "core/view.h"

namespace zinc::kernels {

// For an op's checks; `counter` may be absent.
inline void require_counter(std::string_view op, const ConstView& counter, Device device) {
  if (!counter) return;
  require(device.is_cuda(), op, ": a counter in memory is for a GPU, not for ", device);
  require(counter.dtype() == DType::i64 && counter.shape() == Shape{1} &&
              counter.device() == device && counter.tier() == Tier::device,
          op, ": the counter must be [1] i64 on ", device, ", not ", counter);
}

// What a kernel takes; null where there is none.
inline const uint64_t* counter_of(const ConstView& counter) {
  return counter ? reinterpret_cast<const uint64_t*>(counter.data_as<int64_t>()) : nullptr;
}

}  // namespace zinc::kernels
