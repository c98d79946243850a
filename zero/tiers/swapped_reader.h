// zero/tiers/swapped_reader.h: reads values in swap space from a thread beside training.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "core/view.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

class SwappedReader {
 public:
  // Takes memory for one tile on the tier pinned_host, and waits for the compute stream. `shards`
  // must outlive this.
  SwappedReader(SwappedShards& shards, Context& context);

  // Settles `shards` and records where every tile lies now. Call on the issuing thread, with no
  // read() under way. Throws IoError.
  void begin();
  // Reads the values that lay in `range` of a group's arena at begin(). out: [range.size()] in the
  // tile's dtype, host memory; narrower states are widened. Call from one other thread at a time.
  // The tiles must not have been written since begin(). Throws IoError.
  void read(int group, Range range, int plane, View out);

 private:
  SwappedShards& shards_;
  Block memory_;
  std::vector<offload::SwapSpace::Stored> stored_;  // by tile
  int64_t cached_ = -1;                             // the tile in memory_; -1: none
};

}  // namespace zinc::zero
