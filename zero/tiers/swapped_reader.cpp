#include "zero/tiers/swapped_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/error.h"
#include "core/float16.h"

namespace zinc::zero {

void widen_in_host(const ConstView& x, const View& y) {
  if (x.dtype() == y.dtype()) {
    std::memcpy(y.data(), x.data(), static_cast<size_t>(x.bytes()));
    return;
  }
  bug_check(x.dtype() == DType::bf16 && y.dtype() == DType::f32, "values of ", x.dtype(),
            " do not widen to ", y.dtype());
  std::transform(x.data_as<bf16>(), x.data_as<bf16>() + x.numel(), y.data_as<float>(),
                 [](bf16 value) { return static_cast<float>(value); });
}

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
    if (tile.group != group || inside.empty()) continue;
    if (cached_ != static_cast<int64_t>(i)) {
      cached_ = -1;
      shards_.read_beside(stored_[i], memory_);
      cached_ = static_cast<int64_t>(i);
    }
    const View values = shards_.plane(tile, memory_, plane)
                            .narrow(0, inside.begin - tile.range.begin, inside.size());
    const View to = out.narrow(0, inside.begin - range.begin, inside.size());
    widen_in_host(values, to);
  }
}

}  // namespace zinc::zero
