#include "comm/bucketed_collectives.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/accumulate.h"
#include "kernels/copy.h"
#include "kernels/scale.h"

namespace zinc::comm {
namespace {

// Elements: a piece of a shard begins at a multiple of it, on a whole page in f32.
constexpr int64_t kPieceUnit = 1024;

}  // namespace

BucketedCollectives::Temporary BucketedCollectives::take(int64_t numel, DType dtype,
                                                         StreamRef stream) {
  Temporary temporary;
  temporary.block = context_.allocator().allocate(numel * size_of(dtype), Tier::device,
                                                  Label::communication, stream);
  temporary.view = View(temporary.block.data(), dtype, Shape{numel}, context_.device());
  return temporary;
}

BucketedCollectives::Temporary BucketedCollectives::workspace(Collective collective,
                                                              const View& view, StreamRef stream) {
  return take(communicator_.workspace_bytes(collective, view.bytes(), view.dtype()), DType::u8,
              stream);
}

// Elements of each shard that one collective carries.
int64_t BucketedCollectives::piece_numel(int64_t shard_numel) const {
  const int64_t share = options_.bucket_numel / communicator_.size();
  return std::min(shard_numel, std::max<int64_t>(share / kPieceUnit, 1) * kPieceUnit);
}

void BucketedCollectives::pack(const View& segment, int64_t begin, const View& packed,
                               StreamRef stream) {
  const int64_t world = communicator_.size();
  const int64_t shard = segment.numel() / world;
  const int64_t length = packed.numel() / world;
  kernels::copy({.x = segment.reshape(Shape{world, shard}).narrow(1, begin, length),
                 .y = packed.reshape(Shape{world, length})},
                stream);
}

void BucketedCollectives::unpack(const View& packed, const View& segment, int64_t begin,
                                 StreamRef stream) {
  const int64_t world = communicator_.size();
  const int64_t shard = segment.numel() / world;
  const int64_t length = packed.numel() / world;
  kernels::copy({.x = packed.reshape(Shape{world, length}),
                 .y = segment.reshape(Shape{world, shard}).narrow(1, begin, length)},
                stream);
}

Work BucketedCollectives::reduce_piece(const View& values, const View& out, bool accumulate,
                                       StreamRef stream) {
  Temporary room = workspace(Collective::reduce_scatter, values, stream);
  if (out.dtype() == values.dtype() || out.dtype() == DType::f32) {
    return communicator_.reduce_scatter(
        {.in = values, .out = out, .accumulate = accumulate, .workspace = room.view}, stream);
  }
  Temporary sum = take(out.numel(), values.dtype(), stream);
  communicator_.reduce_scatter({.in = values, .out = sum.view, .workspace = room.view}, stream);
  kernels::accumulate({.x = sum.view, .accumulator = out, .overwrite = !accumulate}, stream);
  return Work(stream->record());
}

Work BucketedCollectives::reduce_scatter(const View& segment, const View& shard, bool accumulate,
                                         StreamRef stream) {
  const int64_t world = communicator_.size();
  bug_check(segment.numel() == world * shard.numel(), "reduce_scatter: ", segment.shape(), " to ",
            shard.shape(), " in a world of ", world);
  const int64_t piece = piece_numel(shard.numel());
  Work work;
  for (int64_t begin = 0; begin < shard.numel(); begin += piece) {
    const int64_t length = std::min(piece, shard.numel() - begin);
    View values = segment;
    Temporary wire;
    const bool converts = segment.dtype() != options_.dtype || options_.divisor != 1.0;
    if (length < shard.numel() || converts) {
      wire = take(world * length, options_.dtype, stream);
      values = wire.view;
      pack(segment, begin, values, stream);
      if (options_.divisor != 1.0) {
        kernels::scale({.x = values, .factor = 1.0 / options_.divisor, .y = values}, stream);
      }
    }
    work = reduce_piece(values, shard.narrow(0, begin, length), accumulate, stream);
  }
  return work;
}

Work BucketedCollectives::all_gather(const View& shard, const View& segment, StreamRef stream) {
  const int64_t world = communicator_.size();
  const int64_t piece = piece_numel(shard.numel());
  if (piece == shard.numel()) {
    return communicator_.all_gather({.shard = shard, .out = segment}, stream);
  }
  for (int64_t begin = 0; begin < shard.numel(); begin += piece) {
    const int64_t length = std::min(piece, shard.numel() - begin);
    Temporary packed = take(world * length, shard.dtype(), stream);
    communicator_.all_gather({.shard = shard.narrow(0, begin, length), .out = packed.view}, stream);
    unpack(packed.view, segment, begin, stream);
  }
  return Work(stream->record());
}

Work BucketedCollectives::all_reduce(const View& values, StreamRef stream) {
  const int64_t world = communicator_.size();
  if (values.dtype() != options_.dtype) {
    const int64_t n = values.numel() / world;
    const View shard = values.narrow(0, communicator_.rank() * n, n);
    reduce_scatter(values, shard, false, stream);
    return all_gather(shard, values, stream);
  }
  const int64_t piece = piece_numel(values.numel() / world) * world;
  Work work;
  for (int64_t begin = 0; begin < values.numel(); begin += piece) {
    const View kept = values.narrow(0, begin, std::min(piece, values.numel() - begin));
    View wire = kept;
    Temporary room;
    if (options_.divisor != 1.0) {
      room = take(kept.numel(), options_.dtype, stream);
      wire = room.view;
      kernels::scale({.x = kept, .factor = 1.0 / options_.divisor, .y = wire}, stream);
    }
    Temporary space = workspace(Collective::all_reduce, wire, stream);
    work = communicator_.all_reduce({.inout = wire, .workspace = space.view}, stream);
    if (room.block) {
      kernels::copy({.x = wire, .y = kept}, stream);
      work = Work(stream->record());
    }
  }
  return work;
}

}  // namespace zinc::comm
