// zero/group/segment_collectives.h: collectives over the segments of an arena, in buckets, in the
// wire's dtype.
//
// A segment [world * n] holds every rank's shard [n] one after the other. Where it is longer than
// a bucket it travels in pieces: elements [o, o + l) of every shard, packed side by side. Sums are
// element-wise, so the size of a bucket changes no bit. Everything is issued to one stream, which
// is also the home of the temporary buffers.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "core/context.h"

namespace zinc::zero {

struct WireOptions {
  DType dtype = DType::f32;            // of sums on the wire; gathers travel as they are
  int64_t bucket_numel = 500'000'000;  // elements of one collective's larger buffer
  double divisor = 1.0;                // sums: values are divided by it before they travel
};

class SegmentCollectives {
 public:
  SegmentCollectives(comm::Communicator& communicator, Context& context, const WireOptions& options)
      : communicator_(communicator), context_(context), options_(options) {}

  // shard (+)= the sum over ranks of this rank's part of `segment`. `segment` is not changed, but
  // `shard` may be the rank's own place in it. Any float dtypes.
  comm::Work reduce_scatter(const View& segment, const View& shard, bool accumulate,
                            StreamRef stream);
  // segment = all ranks' shards. `shard` may be the rank's own place in it. One dtype.
  comm::Work all_gather(const View& shard, const View& segment, StreamRef stream);
  // values [n] = their sum over ranks; n is a multiple of the world size.
  comm::Work all_reduce(const View& values, StreamRef stream);

 private:
  struct Temporary {
    Block block;
    View view;
  };
  Temporary take(int64_t numel, DType dtype, StreamRef stream);
  Temporary workspace(comm::Collective collective, const View& view, StreamRef stream);
  int64_t piece_numel(int64_t shard_numel) const;
  // Elements [begin, begin + length) of every shard between the segment and a packed buffer.
  void pack(const View& segment, int64_t begin, const View& packed, StreamRef stream);
  void unpack(const View& packed, const View& segment, int64_t begin, StreamRef stream);
  comm::Work reduce_piece(const View& values, const View& out, bool accumulate, StreamRef stream);

  comm::Communicator& communicator_;
  Context& context_;
  WireOptions options_;
};

}  // namespace zinc::zero
