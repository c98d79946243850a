// comm/bucketed_collectives.h: collectives over long arrays, in buckets and in the dtype of the
// wire.
//
// A segment [world * n] holds the shards [n] of all ranks, one after the other. A segment longer
// than a bucket travels in pieces: elements [o, o + l) of every shard, packed side by side. Sums
// are element-wise, so the bucket size changes no bit. All work is issued to one stream. Temporary
// buffers belong to that stream.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "core/context.h"

namespace zinc::comm {

struct WireOptions {
  DType dtype = DType::f32;            // dtype of sums on the wire; gathers keep their dtype
  int64_t bucket_numel = 500'000'000;  // elements per collective, over all ranks
  double divisor = 1.0;                // sums: values are divided before they travel
};

class BucketedCollectives {
 public:
  BucketedCollectives(Communicator& communicator, Context& context, const WireOptions& options)
      : communicator_(communicator), context_(context), options_(options) {}

  // shard = the sum over ranks of this rank's part of `segment`; with `accumulate`, shard += that
  // sum. `segment` [world * n] is not changed, but `shard` [n] may be this rank's own place in it.
  // Any float dtypes.
  Work reduce_scatter(const View& segment, const View& shard, bool accumulate, StreamRef stream);
  // segment [world * n] = the shards [n] of all ranks. `shard` may be this rank's own place in
  // `segment`. One dtype.
  Work all_gather(const View& shard, const View& segment, StreamRef stream);
  // values [n] = the sum of `values` over ranks: the bits of reduce_scatter(), gathered. n is a
  // multiple of the world size. Where the wire has another dtype, sums travel back in that of
  // `values`, not rounded to the wire's.
  Work all_reduce(const View& values, StreamRef stream);

 private:
  struct Temporary {
    Block block;
    View view;
  };
  Temporary take(int64_t numel, DType dtype, StreamRef stream);
  Temporary workspace(Collective collective, const View& view, StreamRef stream);
  int64_t piece_numel(int64_t shard_numel) const;
  // Copy elements [begin, begin + length) of every shard between the segment and a packed buffer.
  void pack(const View& segment, int64_t begin, const View& packed, StreamRef stream);
  void unpack(const View& packed, const View& segment, int64_t begin, StreamRef stream);
  Work reduce_piece(const View& values, const View& out, bool accumulate, StreamRef stream);

  Communicator& communicator_;
  Context& context_;
  WireOptions options_;
};

}  // namespace zinc::comm
