// zero/update/updated_weights.h: brings updated weights from where they were computed to the
// model's copy.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/context.h"
#include "core/view.h"
#include "zero/group/weight_store.h"

namespace zinc::zero {

// Two buffers that the update fills in turn with 16-bit weights. A buffer is filled again only
// after its values have arrived.
class UpdatedWeights {
 public:
  // For updates of `slices` that take at most `tile_numel` elements at a time and leave their
  // result in `tier`. Buffers are allocated if a slice has 16-bit weights in another place.
  // `weights` and `context` must outlive this.
  UpdatedWeights(WeightStore& weights, const std::vector<UpdateSlice>& slices, Context& context,
                 Tier tier, int64_t tile_numel);

  static bool is_narrow(const UpdateSlice& slice);

  // The stream of the update: the compute stream for the tier device, host_stream() otherwise.
  StreamRef stream() const { return stream_; }

  // The next buffer, [numel] of the model's dtype, for work on stream(). `slice` is narrow.
  View buffer(const UpdateSlice& slice, int64_t numel);
  // Sends `values` of `range`, as work on stream() leaves them, to the model's copy. After the
  // returned event `values` may change. Throws IoError.
  Event send(const ConstView& values, const UpdateSlice& slice, Range range);
  // Once all these events have happened, all values sent so far have arrived.
  std::vector<Event> sent() const;
  // The compute stream waits for all values that were computed and sent.
  void finish();

 private:
  WeightStore& weights_;
  Context& context_;
  Tier tier_;
  StreamRef stream_;
  std::array<Block, 2> blocks_;
  std::array<Event, 2> sent_;   // by buffer
  std::array<Event, 3> lanes_;  // behind the last send to the device, to the host, to swap space
  size_t next_ = 0;
};

}  // namespace zinc::zero
