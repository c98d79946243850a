// core/range_pool.h: which bytes of which segment a block gets. Bookkeeping of the caching
// allocator; it neither takes memory nor looks at addresses.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "core/stream.h"

namespace zinc {

// Segments cut into ranges that are free or taken. See Note [Placement of blocks] in
// core/allocator.h; sizes come rounded. A home is the number of a stream.
class RangePool {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  // Work that has to end before another home than `home` may use a free range.
  struct Dependency {
    uint32_t home = 0;
    bool recorded = true;  // false: `freed` could not be recorded, and all work of the home until
                           // now has to end
    Event freed{};
  };
  // Neighbouring free ranges that hold `size` bytes when taken together.
  struct Candidate {
    uint32_t first = kNone;
    int num_ranges = 0;
    explicit operator bool() const { return num_ranges > 0; }
  };

  // Makes room for one more segment and one more range, and for `num_homes` homes, so that no call
  // below throws until the next reserve().
  void reserve(uint32_t num_homes);

  Candidate find(int64_t size, uint32_t home) const;
  // Dependencies of the n-th range of a candidate.
  const Dependency& dependency(const Candidate& candidate, int n) const;
  // Takes `size` bytes from the front of the candidate for `home`; returns the range.
  uint32_t take(const Candidate& candidate, int64_t size, uint32_t home) noexcept;
  void give_back(uint32_t range, Event freed, bool recorded) noexcept;

  // Adds a segment whose bytes are free and depend on nothing.
  uint32_t add_segment(int64_t bytes, uint32_t home) noexcept;
  // Removes a segment without taken ranges.
  void remove_segment(uint32_t segment) noexcept;
  // An upper bound of the ranges' numbers.
  uint32_t num_ranges() const { return static_cast<uint32_t>(ranges_.size()); }
  // Segments, numbered from 0 in the order in which they were added; removed ones have 0 bytes.
  uint32_t num_segments() const { return static_cast<uint32_t>(segments_.size()); }
  int64_t segment_bytes(uint32_t segment) const { return segments_[segment].bytes; }
  bool is_unused(uint32_t segment) const;
  // Ranges of a segment from its start on: first_range, then next_range until kNone.
  uint32_t first_range(uint32_t segment) const { return segments_[segment].first; }
  uint32_t next_range(uint32_t range) const { return ranges_[range].next; }

  bool is_free(uint32_t range) const { return !ranges_[range].taken; }
  uint32_t segment_of(uint32_t range) const { return ranges_[range].segment; }
  int64_t offset_of(uint32_t range) const { return ranges_[range].offset; }
  int64_t size_of(uint32_t range) const { return ranges_[range].size; }
  const Dependency& dependency(uint32_t range) const { return ranges_[range].dependency; }

 private:
  struct Segment {
    int64_t bytes = 0;
    uint32_t first = kNone;
  };
  struct Range {
    int64_t offset = 0;
    int64_t size = 0;
    uint32_t segment = 0;
    uint32_t previous = kNone;
    uint32_t next = kNone;
    bool taken = false;
    Dependency dependency;
  };
  // Orders free ranges by size, then segment, then offset.
  struct FreeRange {
    int64_t size = 0;
    uint32_t segment = 0;
    int64_t offset = 0;
    uint32_t range = 0;
    friend auto operator<=>(const FreeRange&, const FreeRange&) = default;
  };

  using FreeSet = std::set<FreeRange>;

  uint32_t new_range() noexcept;
  FreeRange free_key(uint32_t range) const;
  void list(uint32_t range) noexcept;
  void unlist(uint32_t range) noexcept;
  // Merges the range's right neighbour into it.
  void absorb_next(uint32_t range) noexcept;
  bool is_free_of(uint32_t range, uint32_t home) const;
  Candidate find_run(int64_t size) const;

  std::vector<Segment> segments_;
  std::vector<Range> ranges_;
  std::vector<uint32_t> unused_;           // indices into ranges_
  std::vector<FreeSet> free_;              // by home
  std::vector<FreeSet::node_type> nodes_;  // by range: its node while no set has it
};

}  // namespace zinc
