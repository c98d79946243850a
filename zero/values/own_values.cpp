#include "zero/values/own_values.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"
#include "core/transfer.h"
#include "zero/group/weight_loading.h"

namespace zinc::zero {
namespace {

// The bytes of the largest piece that any rank reads. All ranks take the same memory.
int64_t room_bytes(const std::vector<ShardGroup>& groups, int world) {
  int64_t bytes = 0;
  for (const ShardGroup& group : groups) {
    for (const Placement& placement : group.placements()) {
      const int64_t shard = group.segment(placement.segment).size / world;
      const int64_t most = std::min({placement.range().size(), shard, kPieceNumel});
      bytes = std::max(bytes, most * size_of(group.wide_dtype()));
    }
  }
  return bytes;
}

}  // namespace

OwnBytes own_bytes(const std::vector<ShardGroup>& groups, int world, int num_states) {
  OwnBytes bytes;
  for (const ShardGroup& group : groups) {
    for (const Segment& segment : group.segments()) {
      const int64_t plane = segment.size / world * size_of(group.wide_dtype());
      if (is_trained(segment.kind)) {
        bytes.trained += plane * (1 + num_states);
      } else {
        bytes.frozen += plane;
      }
    }
  }
  return bytes;
}

void read_own_values(const std::vector<ShardGroup>& groups, WeightStore& weights,
                     const comm::Communicator& communicator, Context& context,
                     std::span<const std::string_view> kinds, const OwnHold* hold,
                     const std::function<bool(const autograd::Parameter&)>& hands_out,
                     const TakeOwn& take) {
  const Block room = context.allocate(room_bytes(groups, communicator.size()), Label::staging);
  context.compute()->synchronize();
  std::vector<std::byte> copy;
  const auto in_host = [&](const View& values) -> ConstView {
    if (context.device().meta || context.device().is_cpu()) return values;
    copy.resize(static_cast<size_t>(values.bytes()));
    download(values, copy.data(), context.compute());
    return {copy.data(), values.dtype(), values.shape(), kCpu};
  };
  for (const ShardGroup& group : groups) {
    int position = -1;
    for (const Placement& placement : group.placements()) {
      ++position;
      const std::optional<TensorSlice>& slice = placement.parameter->slice();
      if (placement.range().empty() || !hands_out(*placement.parameter)) continue;
      const Range own = intersect(
          placement.range(),
          group.segment(placement.segment).shard(communicator.rank(), communicator.size()));
      const Range part{own.begin - placement.offset, own.end - placement.offset};
      const size_t planes = is_trained(placement.segment) ? kinds.size() : 1;
      // One kind after the other: a file of them is written from its begin to its end.
      for (size_t plane = 0; plane < planes; ++plane) {
        for (int64_t begin = own.begin; begin < own.end; begin += kPieceNumel) {
          const Range piece{begin, std::min(begin + kPieceNumel, own.end)};
          const View values(room.data(), group.wide_dtype(), Shape{piece.size()}, context.device());
          const ParameterIndex index{group.index(), position};
          const bool is_held = hold != nullptr && is_trained(placement.segment);
          OwnPiece own{.name = placement.parameter->name(),
                       .kind = kinds[plane],
                       .slice = slice ? &*slice : nullptr,
                       .part = part,
                       .begin = begin - placement.offset,
                       .values = {}};
          if (take && is_held) own.lease = hold->gate.hold(group.index(), piece);
          if (is_held && hold->swapped != nullptr) {
            own.read = [reader = hold->swapped, group = group.index(), piece,
                        plane = static_cast<int>(plane)](View out) {
              reader->read(group, piece, plane, out);
            };
          } else {
            const ConstView kept = weights.own_in_place(index, static_cast<int>(plane), piece);
            if (kept && kept.dtype() == values.dtype()) {
              own.values = kept;
            } else if (kept && is_held) {
              own.read = [kept](View out) { widen_in_host(kept, out); };
            } else {
              bug_check(!is_held || context.device().meta, "values of ", own.name,
                        " are held, and do not stay where they are");
              weights.read_own(index, static_cast<int>(plane), piece, values);
              own.values = take ? in_host(values) : values;
            }
          }
          if (take) take(own);
        }
      }
    }
  }
}

}  // namespace zinc::zero
