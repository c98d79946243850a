// zero/group/sums_away.h: where sums of gradients are that leave the device: in host memory
// (host_gradients.h) or in swap space (swapped_gradients.h).
#pragma once

#include <functional>

#include "core/stream.h"
#include "core/view.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"

namespace zinc::zero {

// Called from the issuing thread only. All calls may throw IoError.
class SumsAway {
 public:
  virtual ~SumsAway() = default;

  // Micro-batches begin. `first`: the first ones of a step.
  virtual void begin(bool first) = 0;
  // A range of a segment, on the device. It lies in this rank's shard: [range.size()].
  using OnDevice = std::function<View(SegmentKind segment, Range range)>;
  // Which of the step's micro-batches the values are from. First and last: they are the whole sum.
  struct Turn {
    bool is_first = true;
    bool is_last = true;
  };
  // Issues the copies of a group's values off the device, behind the work on the compute and reduce
  // streams. Returns the event behind these copies: then the memory on the device is free.
  virtual Event send(int group, const OnDevice& values, Turn turn) = 0;
  // True if all that was sent of a group is where it stays. Starts transfers that can be started.
  virtual bool has_arrived(int group) = 0;
  // After this call read() gives the group's sums to work on `stream`.
  virtual void await(int group, StreamRef stream) = 0;
  // Waits, where the calling thread has to, until all that was sent is where it stays.
  virtual void await_all() = 0;
  // The sums of `slice` or of a part of it, in host memory. Perhaps fewer than asked for, and then
  // valid until the next call.
  virtual ConstView read(const OwnedRange& slice) = 0;
  // Frees the sums of a group. The compute stream must have waited for all that reads them.
  virtual void discard(int group) = 0;
  // The step has ended: frees what read() uses.
  virtual void end_step() = 0;
  // Starts the transfers that can be started. Waits for nothing.
  virtual void advance() = 0;
};

}  // namespace zinc::zero
