#include "zero/own_weights.h"

#include <algorithm>
#include <cstddef>

#include "core/transfer.h"

namespace zinc::zero {
namespace {

constexpr int64_t kPieceNumel = int64_t{1} << 20;

// Of the largest piece that any rank reads: all ranks take as much.
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

void read_own_weights(
    const std::vector<ShardGroup>& groups, WeightStore& weights,
    const comm::Communicator& communicator, Context& context,
    const std::function<void(const std::string& name, int64_t begin, ConstView values)>& take) {
  const Block room = context.allocate(room_bytes(groups, communicator.size()), Label::staging);
  for (const ShardGroup& group : groups) {
    const DType wide = group.wide_dtype();
    std::vector<std::byte> copy;
    const auto in_host = [&](const View& values) -> ConstView {
      if (context.device().meta || context.device().is_cpu()) return values;
      copy.resize(static_cast<size_t>(values.bytes()));
      download(values, copy.data(), context.compute());
      return {copy.data(), values.dtype(), values.shape(), kCpu};
    };
    int position = -1;
    for (const Placement& placement : group.placements()) {
      ++position;
      if (placement.range().empty()) continue;
      const Range own = intersect(
          placement.range(),
          group.segment(placement.segment).shard(communicator.rank(), communicator.size()));
      if (own.empty()) continue;
      for (int64_t begin = own.begin; begin < own.end; begin += kPieceNumel) {
        const Range piece{begin, std::min(begin + kPieceNumel, own.end)};
        const View values(room.data(), wide, Shape{piece.size()}, context.device());
        weights.read_own({group.index(), position}, piece, values);
        if (take)
          take(placement.parameter->name(), piece.begin - placement.offset, in_host(values));
      }
    }
  }
}

}  // namespace zinc::zero
