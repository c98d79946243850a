#include "zero/layout/state_split.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace zinc::zero {

StateSplit::StateSplit(const ShardGroups& groups, int parts, Tier tier, double share)
    : parts_(parts), tier_(tier) {
  int64_t owned = 0;
  for (const ShardGroup& group : groups) owned += group.trained_numel() / parts;
  const double leaving = tier == Tier::device ? 0.0 : share * static_cast<double>(owned);
  const int64_t chunks = static_cast<int64_t>(std::ceil(leaving / kNormChunk));
  leaves_device_ = chunks > 0;
  int64_t left = owned - chunks * kNormChunk;
  for (const ShardGroup& group : groups) {
    on_device_.push_back(std::min(left, group.trained_numel() / parts));
    left -= on_device_.back();
  }
}

int64_t StateSplit::numel(const ShardGroup& group, Tier tier) const {
  const int64_t on_device = on_device_[group];
  if (tier == Tier::device) return on_device;
  return tier == tier_ ? group.trained_numel() / parts_ - on_device : 0;
}

std::vector<OwnedRange> StateSplit::cut(const ShardGroup& group, const Segment& segment,
                                        Range range) const {
  const int64_t length = segment.size / parts_;
  const int64_t in_segment = range.begin - segment.offset;
  bug_check(!range.empty() && in_segment >= 0 &&
                in_segment / length == (range.end - 1 - segment.offset) / length,
            "[", range.begin, ", ", range.end, ") is not part of one shard of group ",
            group.name());
  const int64_t on_device = on_device_[group];
  // The place of the range among all elements that its owner has in the group.
  const int64_t place = segment.offset / parts_ + in_segment % length;
  const int64_t cut = std::clamp(range.begin + on_device - place, range.begin, range.end);
  std::vector<OwnedRange> slices;
  const auto add = [&](Range part, Tier tier, int64_t in_tier) {
    if (!part.empty()) slices.push_back({group.index(), segment.kind, part, tier, in_tier});
  };
  add({range.begin, cut}, Tier::device, place);
  add({cut, range.end}, tier_, place + cut - range.begin - on_device);
  return slices;
}

std::vector<OwnedRange> StateSplit::slices(const ShardGroups& groups, int owner) const {
  std::vector<OwnedRange> all;
  for (const ShardGroup& group : groups) {
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      const auto own = cut(group, segment, segment.shard(owner, parts_));
      all.insert(all.end(), own.begin(), own.end());
    }
  }
  return all;
}

}  // namespace zinc::zero
