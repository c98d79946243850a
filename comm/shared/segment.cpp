#include "comm/shared/segment.h"

#include <cstdlib>
#include <new>

#include "core/error.h"

namespace zinc::comm {
namespace {

struct Layout {
  int64_t ranks, desks, taken, buffers, end;
};

int64_t bytes_for(int64_t count, size_t each) { return count * static_cast<int64_t>(each); }

Layout layout_of(const SegmentShape& shape) {
  const int64_t size = shape.size;
  const int64_t desks = size * kNumDesks;
  Layout layout{};
  layout.ranks = bytes_for(1, sizeof(FaultRecord));
  layout.desks = layout.ranks + bytes_for(size, sizeof(RankRecord));
  layout.taken = layout.desks + bytes_for(desks, sizeof(Desk));
  // Buffers begin on a page of their own.
  layout.buffers = (layout.taken + bytes_for(desks * size, sizeof(Progress)) + 4095) / 4096 * 4096;
  layout.end = layout.buffers + desks * kNumBuffers * shape.buffer_bytes;
  return layout;
}

}  // namespace

int64_t Segment::bytes_of(const SegmentShape& shape) { return layout_of(shape).end; }

std::shared_ptr<Segment> Segment::on_heap(const SegmentShape& shape) {
  void* memory =
      std::aligned_alloc(4096, static_cast<size_t>((bytes_of(shape) + 4095) / 4096 * 4096));
  if (memory == nullptr) throw std::bad_alloc();
  auto segment = std::make_shared<Segment>(std::shared_ptr<void>(memory, std::free),
                                           static_cast<std::byte*>(memory), shape);
  segment->construct();
  return segment;
}

void Segment::construct() {
  bug_check(shape_.buffer_bytes % 64 == 0, "segment: buffers of ", shape_.buffer_bytes, " bytes");
  new (&fault()) FaultRecord{};
  for (int r = 0; r < shape_.size; ++r) {
    new (&rank(r)) RankRecord{};
    for (int d = 0; d < kNumDesks; ++d) {
      new (&desk(r, d)) Desk{};
      for (int reader = 0; reader < shape_.size; ++reader) {
        (new (&taken(r, d, reader)) Progress{})->chunks = kAllTaken;
      }
    }
  }
}

RankRecord& Segment::rank(int rank) const {
  return *at<RankRecord>(layout_of(shape_).ranks + bytes_for(rank, sizeof(RankRecord)));
}

Desk& Segment::desk(int owner, int index) const {
  return *at<Desk>(layout_of(shape_).desks + bytes_for(owner * kNumDesks + index, sizeof(Desk)));
}

Progress& Segment::taken(int owner, int index, int reader) const {
  const int64_t place = int64_t{owner * kNumDesks + index} * shape_.size + reader;
  return *at<Progress>(layout_of(shape_).taken + bytes_for(place, sizeof(Progress)));
}

std::byte* Segment::buffer(int owner, int index, uint64_t chunk) const {
  const int64_t place =
      int64_t{owner * kNumDesks + index} * kNumBuffers + static_cast<int64_t>(chunk % kNumBuffers);
  return memory_ + layout_of(shape_).buffers + place * shape_.buffer_bytes;
}

}  // namespace zinc::comm
