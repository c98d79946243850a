// zero/update/updated_weights.h: updated weights on their way from where they were computed to
// where the model's copy lives.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/context.h"
#include "core/view.h"
#include "zero/group/weight_store.h"

namespace zinc::zero {

// Two buffers that the update fills in turn with 16-bit weights; a buffer is filled again only
// after what it held has arrived.
class UpdatedWeights {
 public:
  // For updates of `slices`, at most `tile_numel` elements at a time, that leave their result in
  // `tier`. Buffers where a slice has 16-bit weights elsewhere. `weights` must outlive this.
  UpdatedWeights(WeightStore& weights, const std::vector<UpdateSlice>& slices, Context& context,
                 Tier tier, int64_t tile_numel);

  static bool is_narrow(const UpdateSlice& slice);

  // Where the update is computed: host_stream() where it leaves its result in host memory.
  StreamRef stream() const { return stream_; }

  // The next buffer, [numel]; work issued to stream() may fill it. `slice` is narrow.
  View buffer(const UpdateSlice& slice, int64_t numel);
  // `values` of [range), as work issued to stream() before leaves them, to the model's copy. The
  // event: `values` may change again. Throws IoError.
  Event send(const ConstView& values, const UpdateSlice& slice, Range range);
  // Everything that was sent until now is where it belongs behind all of these.
  std::vector<Event> sent() const;
  // The compute stream waits for everything that was computed and sent.
  void finish();

 private:
  WeightStore& weights_;
  Context& context_;
  Tier tier_;
  StreamRef stream_;
  std::array<Block, 2> blocks_;
  std::array<Event, 2> sent_;   // by buffer
  std::array<Event, 3> lanes_;  // the last that was sent to the device, to the host, to swap space
  size_t next_ = 0;
};

}  // namespace zinc::zero
