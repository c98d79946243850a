// zero/tiers/swapped_reader.h: values in swap space for a thread beside training.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "core/view.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

class SwappedReader {
 public:
  // Takes memory for one tile, on the tier pinned_host. `shards` must outlive this.
  SwappedReader(SwappedShards& shards, Context& context);

  // Notes where all tiles lie now. On the thread that issues work, with nobody reading.
  void begin();
  // What lay in [range) of a group's arena at begin(): [range.size()] of the tile's dtype, in host
  // memory. On one other thread at a time; what is read must not have been written since. Throws
  // IoError.
  void read(int group, Range range, int plane, View out);

 private:
  SwappedShards& shards_;
  Block memory_;
  std::vector<offload::SwapSpace::Stored> stored_;  // by tile
  int64_t cached_ = -1;                             // tile in memory_
};

}  // namespace zinc::zero
