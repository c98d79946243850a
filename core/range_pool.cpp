#include "core/range_pool.h"

#include <utility>

namespace zinc {

void RangePool::reserve(uint32_t num_homes) {
  // A take splits off one range and a new segment brings one more.
  constexpr size_t kNewRanges = 2;
  if (segments_.size() == segments_.capacity()) segments_.reserve(2 * segments_.size() + 8);
  if (ranges_.size() + kNewRanges > ranges_.capacity()) {
    const size_t capacity = 2 * ranges_.size() + 32;
    unused_.reserve(capacity);
    ranges_.reserve(capacity);
  }
  while (nodes_.size() < ranges_.size() + kNewRanges) {
    FreeSet maker;
    nodes_.push_back(maker.extract(maker.insert(FreeRange{}).first));
  }
  if (free_.size() < num_homes) free_.resize(num_homes);
}

RangePool::Candidate RangePool::find(int64_t size, uint32_t home) const {
  const auto best_of = [&](uint32_t h) -> const FreeRange* {
    const auto it = free_[h].lower_bound({.size = size});
    return it == free_[h].end() ? nullptr : &*it;
  };
  if (const FreeRange* own = best_of(home)) return {own->range, 1};
  const FreeRange* best = nullptr;
  for (uint32_t h = 0; h < free_.size(); ++h) {
    const FreeRange* entry = best_of(h);
    if (entry != nullptr && (best == nullptr || *entry < *best)) best = entry;
  }
  if (best != nullptr) return {best->range, 1};
  return find_run(size);
}

RangePool::Candidate RangePool::find_run(int64_t size) const {
  Candidate best;
  int64_t best_bytes = std::numeric_limits<int64_t>::max();
  for (const Segment& segment : segments_) {
    if (segment.bytes < size) continue;
    for (uint32_t range = segment.first; range != kNone;) {
      Candidate run{range, 0};
      int64_t run_bytes = 0;  // bytes of the whole run
      bool enough = false;
      for (; range != kNone && !ranges_[range].taken; range = ranges_[range].next) {
        if (!enough) ++run.num_ranges;
        run_bytes += ranges_[range].size;
        enough = run_bytes >= size;
      }
      if (enough && run_bytes < best_bytes) {
        best = run;
        best_bytes = run_bytes;
      }
      if (range != kNone) range = ranges_[range].next;  // past the taken range
    }
  }
  return best;
}

const RangePool::Dependency& RangePool::dependency(const Candidate& candidate, int n) const {
  uint32_t range = candidate.first;
  for (int i = 0; i < n; ++i) range = ranges_[range].next;
  return ranges_[range].dependency;
}

uint32_t RangePool::take(const Candidate& candidate, int64_t size, uint32_t home) noexcept {
  const uint32_t taken = candidate.first;
  unlist(taken);
  for (int i = 1; i < candidate.num_ranges; ++i) {
    const uint32_t next = ranges_[taken].next;
    unlist(next);
    // The rest of the run lies in the last range and keeps the dependency of that range.
    ranges_[taken].dependency = std::move(ranges_[next].dependency);
    absorb_next(taken);
  }
  if (ranges_[taken].size > size) {
    const uint32_t rest = new_range();
    Range& front = ranges_[taken];
    ranges_[rest] = {.offset = front.offset + size,
                     .size = front.size - size,
                     .segment = front.segment,
                     .previous = taken,
                     .next = front.next,
                     .taken = false,
                     .dependency = std::move(front.dependency)};
    if (front.next != kNone) ranges_[front.next].previous = rest;
    front.next = rest;
    front.size = size;
    list(rest);
  }
  ranges_[taken].taken = true;
  ranges_[taken].dependency = {.home = home};
  return taken;
}

void RangePool::give_back(uint32_t range, Event freed, bool recorded) noexcept {
  const uint32_t home = ranges_[range].dependency.home;
  ranges_[range].taken = false;
  const uint32_t next = ranges_[range].next;
  if (is_free_of(next, home)) {
    unlist(next);
    absorb_next(range);
  }
  const uint32_t previous = ranges_[range].previous;
  if (is_free_of(previous, home)) {
    unlist(previous);
    absorb_next(previous);
    range = previous;
  }
  // The event of this free comes after those of the neighbours in the home stream's order.
  ranges_[range].dependency = {.home = home, .recorded = recorded, .freed = std::move(freed)};
  list(range);
}

uint32_t RangePool::add_segment(int64_t bytes, uint32_t home) noexcept {
  const auto segment = static_cast<uint32_t>(segments_.size());
  const uint32_t range = new_range();
  ranges_[range] = {.offset = 0, .size = bytes, .segment = segment, .dependency = {.home = home}};
  segments_.push_back({.bytes = bytes, .first = range});
  list(range);
  return segment;
}

void RangePool::remove_segment(uint32_t segment) noexcept {
  uint32_t range = segments_[segment].first;
  while (range != kNone) {
    unlist(range);
    const uint32_t next = ranges_[range].next;
    ranges_[range] = {};
    unused_.push_back(range);
    range = next;
  }
  segments_[segment] = {};
}

bool RangePool::is_unused(uint32_t segment) const {
  for (uint32_t range = segments_[segment].first; range != kNone; range = ranges_[range].next) {
    if (ranges_[range].taken) return false;
  }
  return true;
}

uint32_t RangePool::new_range() noexcept {
  if (unused_.empty()) {
    ranges_.emplace_back();
    return static_cast<uint32_t>(ranges_.size() - 1);
  }
  const uint32_t range = unused_.back();
  unused_.pop_back();
  return range;
}

RangePool::FreeRange RangePool::free_key(uint32_t range) const {
  const Range& r = ranges_[range];
  return {.size = r.size, .segment = r.segment, .offset = r.offset, .range = range};
}

void RangePool::list(uint32_t range) noexcept {
  FreeSet::node_type node = std::move(nodes_[range]);
  node.value() = free_key(range);
  free_[ranges_[range].dependency.home].insert(std::move(node));
}

void RangePool::unlist(uint32_t range) noexcept {
  nodes_[range] = free_[ranges_[range].dependency.home].extract(free_key(range));
}

void RangePool::absorb_next(uint32_t range) noexcept {
  const uint32_t gone = ranges_[range].next;
  ranges_[range].size += ranges_[gone].size;
  ranges_[range].next = ranges_[gone].next;
  if (ranges_[range].next != kNone) ranges_[ranges_[range].next].previous = range;
  ranges_[gone] = {};
  unused_.push_back(gone);
}

bool RangePool::is_free_of(uint32_t range, uint32_t home) const {
  return range != kNone && !ranges_[range].taken && ranges_[range].dependency.home == home;
}

}  // namespace zinc
