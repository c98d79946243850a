// zero/group/tile_inputs.h: what an update of a slice reads beside weights and states.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "zero/layout/state_split.h"

namespace zinc::zero {

class TileInputs {
 public:
  virtual ~TileInputs() = default;

  // [slice.range.size()]: the gradient of a slice that this rank updates, or of part of it; or what
  // stands in its place. In a memory tier of the slice.
  virtual ConstView gradient(const OwnedRange& slice) = 0;
  // True if the group's gradients have reached their tier. Starts transfers that can be started.
  // Throws IoError.
  virtual bool has_arrived(int group) = 0;
  // After this call gradient() gives the group's values to work on `stream`. In host memory:
  // `stream` waits for them. In swap space: the calling thread waits. Throws IoError.
  virtual void await(int group, StreamRef stream) = 0;
};

}  // namespace zinc::zero
