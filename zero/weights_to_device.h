// zero/weights_to_device.h: updated weights on their way from host memory to the device.
#pragma once

#include <array>
#include <cstdint>

#include "core/context.h"
#include "core/view.h"

namespace zinc::zero {

// Two buffers in host memory that the host's update fills in turn with 16-bit weights; a buffer is
// filled again only after the device has its bytes.
class WeightsToDevice {
 public:
  // Buffers of `numel` elements; 0: none are needed, weights travel from where they are.
  WeightsToDevice(Context& context, int64_t numel, DType dtype);

  // The next buffer, [numel]; work issued to the compute stream may fill it.
  View buffer(int64_t numel);
  // `host`, as work issued to the compute stream before leaves it, to `device`, on the copy-in
  // stream. The event: the device has them.
  Event send(const ConstView& host, const View& device);
  // The compute stream waits for everything that was sent.
  void finish();

 private:
  Context& context_;
  DType dtype_;
  std::array<Block, 2> blocks_;
  std::array<Event, 2> sent_;
  size_t next_ = 0;
};

}  // namespace zinc::zero
