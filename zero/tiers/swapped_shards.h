// zero/tiers/swapped_shards.h: what a rank keeps of its shards in swap space.
//
// Shards are cut into tiles. A tile's values lie together, one plane after the other: of optimizer
// states the master weights first, then one state after the other; of parameters the one plane. So
// a tile moves with one read or one write. Whole tiles are what is read, changed and written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "core/view.h"
#include "offload/swap_space.h"
#include "zero/layout/shard_group.h"
#include "zero/tiers/swap_extents.h"
#include "zero/tiers/swap_traffic.h"

namespace zinc::zero {

// The kinds of values that a trained element has, as planes of a tile and elsewhere: what the
// optimizer works on, then its states.
inline constexpr int kMasterPlane = 0;
inline constexpr int kFirstStatePlane = 1;

// One run of elements of one segment.
struct Tile {
  int group = 0;
  SegmentKind segment = SegmentKind::trained;
  Range range;  // of the group's arena
  Encoding encoding{};
  int64_t plane_bytes() const { return encoding.bytes_of(range.size()); }
};

// A rank's shards of the trained segments, for its master weights and states: f32 (f64 models:
// f64). Tiles of at most `most` elements, rounded up to kNormChunk.
std::vector<Tile> optimizer_tiles(const std::vector<ShardGroup>& groups,
                                  const comm::Communicator& communicator, int64_t most);
// A rank's shards of one group's segments that are gathered for use, as they are kept: in the model's
// dtype or encoded. `most` is rounded up to kShardUnit.
std::vector<Tile> parameter_tiles(const ShardGroup& group, const comm::Communicator& communicator,
                                  int64_t most);

// One thread, that which issues work, but for read_beside(). Host tier; on a meta device nothing is opened or moved.
class SwappedShards {
 public:
  // Takes the space. Values are zero until they are written. Throws IoError.
  // `label`: what is counted on the tier nvme, and for gradients named in the trace.
  SwappedShards(const std::vector<ShardGroup>& groups, std::vector<Tile> tiles, int num_planes,
                Label label, Context& context, const SwapSettings& settings);

  const std::vector<Tile>& tiles() const { return tiles_; }
  int num_planes() const { return num_planes_; }
  int64_t bytes_of(const Tile& tile) const;  // of all planes, in whole pages
  int64_t largest_tile_bytes() const;
  // One plane of a tile that lies in host memory.
  View plane(const Tile& tile, const Block& memory, int index) const;

  // The first values of a range of one segment, of the rank's own: as many as one tile holds, in
  // host memory until the next call. Waits.
  View read(const ShardGroup& group, Range range, int plane);
  // `values`: of the range, on the device, as a tile holds them. Waits.
  void write(const ShardGroup& group, Range range, int plane, const ConstView& values);
  // Everything written by write() is in the space, and the tile that read() and write() keep in
  // host memory is given back. Comes before transfers of whole tiles, and before passes.
  void settle();
  // That tile alone is given back: nothing was written by write().
  void forget();

  // Whole tiles, from and to memory of bytes_of(tile) that no other work touches meanwhile; the
  // transfer is waited for by the caller.
  offload::SwapSpace::Transfer start_read(size_t tile, const Block& memory);
  offload::SwapSpace::Transfer start_write(size_t tile, const Block& memory);

  // Of settled values: where a tile lies until it is written again, and reading it on any thread.
  offload::SwapSpace::Stored stored(size_t tile) const { return extents_->stored(tile); }
  void read_beside(const offload::SwapSpace::Stored& stored, const Block& memory) const {
    extents_->read_beside(stored, memory);
  }

  // Bytes of whole tiles that moved; on a meta device those that would have.
  SwapTraffic traffic() const { return extents_->traffic(); }

 private:
  // Makes `tile` the one in the cache.
  void load(size_t tile);
  void flush();
  const std::string& name_of_group(size_t tile) const;

  const std::vector<ShardGroup>& groups_;
  Context& context_;
  const int num_planes_;
  std::vector<Tile> tiles_;
  std::vector<std::string> names_;        // by group, for the trace
  std::vector<bool> written_;             // by tile: the space holds values
  std::unique_ptr<SwapExtents> extents_;  // one per tile
  Block cache_;                           // one tile, for read() and write()
  int64_t cached_ = -1;
  bool changed_ = false;
};

}  // namespace zinc::zero
