// tests/comm/gpu_array.h: arrays in the memory of a rank's GPU, and the options of a world that has
// NCCL.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "comm/world.h"
#include "core/context.h"
#include "core/dtype.h"
#include "core/transfer.h"
#include "core/view.h"

namespace zinc::comm::testing {

inline ConnectOptions nccl_options(std::chrono::milliseconds deadline) {
  return {.device = {.kind = DeviceKind::cuda},
          .spread_devices = true,
          .device_collectives = DeviceCollectives::nccl,
          .num_threads = 1,
          .bind_threads = false,
          .deadline = deadline};
}

// An array of the device.
class GpuArray {
 public:
  GpuArray(World& world, DType dtype, int64_t n)
      : context_(world.context()),
        block_(context_.allocate(n * size_of(dtype), Label::communication)),
        view_(block_.data(), dtype, Shape{n}, context_.device()) {}
  template <class T>
  GpuArray(World& world, const std::vector<T>& values)
      : GpuArray(world, kDTypeOf<T>, static_cast<int64_t>(values.size())) {
    upload(values.data(), view_, context_.compute());
    context_.compute()->synchronize();
  }
  const View& view() const { return view_; }
  template <class T>
  std::vector<T> values() const {
    std::vector<T> values(static_cast<size_t>(view_.numel()));
    download(view_, values.data(), context_.compute());
    return values;
  }

 private:
  Context& context_;
  Block block_;
  View view_;
};

}  // namespace zinc::comm::testing
