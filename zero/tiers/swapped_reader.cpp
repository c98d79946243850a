#include "zero/tiers/swapped_reader.h"

namespace zinc::zero {

SwappedReader::SwappedReader(SwappedShards& shards, Context& context)
    : shards_(shards),
      memory_(context.allocate(shards.largest_tile_bytes(), Label::staging, Tier::pinned_host)) {
  context.compute()->synchronize();  // before the disk touches the memory
}

void SwappedReader::begin() {
  shards_.settle();
  stored_.clear();
  for (size_t i = 0; i < shards_.tiles().size(); ++i) stored_.push_back(shards_.stored(i));
  cached_ = -1;
}

void SwappedReader::read(int group, Range range, int plane, View out) {
  for (size_t i = 0; i < stored_.size(); ++i) {
    const Tile& tile = shards_.tiles()[i];
    const Range inside = intersect(tile.range, range);
    if (tile.group != group || !tile.planes.has(plane) || inside.empty()) continue;
    if (cached_ != static_cast<int64_t>(i)) {
      cached_ = -1;
      shards_.read_beside(stored_[i], memory_);
      cached_ = static_cast<int64_t>(i);
    }
    const Encoding encoding = shards_.encoding_of(tile, plane);
    encoding.widen(
        encoding.part(shards_.plane(tile, memory_, plane), inside.from(tile.range.begin)),
        out.narrow(0, inside.begin - range.begin, inside.size()));
  }
}

}  // namespace zinc::zero
