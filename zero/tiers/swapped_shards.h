// zero/tiers/swapped_shards.h: the shards that a rank keeps in swap space.
//
// Shards are cut into tiles. A tile has one or more planes, one after the other. Optimizer tiles:
// the master weights, then each optimizer state, which may be narrower; of matrices master weights
// and states are tiles of their own, because two phases of an update need one each. Parameter and
// gradient tiles: one plane. So a tile moves with one read or one write. Tiles are read and written
// whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "core/view.h"
#include "offload/swap_extents.h"
#include "offload/swap_space.h"
#include "offload/swap_traffic.h"
#include "optim/optimizer.h"
#include "zero/engine_config.h"
#include "zero/layout/planes.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// The swap space's folder, from `offload`, and the use of disks, from the configuration.
offload::SwapSettings swap_settings(const EngineConfig& config, const OffloadConfig& offload,
                                    offload::SwapClock* clock);

// A run of elements of one segment.
struct Tile {
  int group = 0;
  SegmentKind segment = SegmentKind::trained;
  Range range;  // in the group's arena
  Encoding encoding{};
  Planes planes{kMasterPlane, kMasterPlane + 1};
};

// Tiles for master weights and optimizer states: this rank's shards of the trained segments;
// weights in f32 (f64 models: f64; optim::States::weights). A tile has at most `most` elements,
// rounded up to kNormChunk.
std::vector<Tile> optimizer_tiles(const ShardGroups& groups, const comm::Communicator& communicator,
                                  const optim::States& states, int64_t most);
// Tiles for parameters: this rank's shards of all segments of a group but the persistent one, in
// the model's dtype or encoded. A tile has at most `most` elements, rounded up to kShardUnit
// (dtypes of 4 bytes and more: to kNormChunk).
std::vector<Tile> parameter_tiles(const ShardGroup& group, const comm::Communicator& communicator,
                                  int64_t most);

// Called from the issuing thread only, but for read_beside(). Views are in the host tier. On a meta
// device nothing is opened or moved.
class SwappedShards {
 public:
  // Takes the swap space. Values are zero until they are written. `states`: their formats count.
  // `label`: the label under which the bytes count on the tier nvme; Label::gradients also
  // changes the names in the trace. `groups` must outlive this. Throws IoError.
  SwappedShards(const ShardGroups& groups, std::vector<Tile> tiles, const optim::States& states,
                Label label, Context& context, const offload::SwapSettings& settings);

  const std::vector<Tile>& tiles() const { return tiles_; }
  int64_t bytes_of(const Tile& tile) const;  // all planes, rounded up to whole pages
  int64_t largest_tile_bytes() const;
  // How a plane of a tile is stored: as the tile says, or, of a state, optim::States.
  Encoding encoding_of(const Tile& tile, int plane) const;
  // Plane `index` of a tile whose bytes are in `memory`: the elements of the tile in the plane's
  // encoding. Absent if the tile has no such plane.
  View plane(const Tile& tile, const Block& memory, int index) const;

  // The values from range.begin on, up to the end of `range` or of the tile. `range` lies in this
  // rank's shard of one segment. The view is in host memory and valid until the next call. Waits
  // for the disk. Throws IoError.
  View read(const ShardGroup& group, Range range, int plane);
  // Writes the values of `range`. `values`: on the device, in the plane's encoding. Waits for the
  // compute stream and the disk. The last tile that was changed stays in host memory until
  // settle(). Throws IoError.
  void write(const ShardGroup& group, Range range, int plane, const ConstView& values);
  // Brings everything that write() wrote to swap space, writes zeros to tiles that were never
  // written, and frees the host memory that read() and write() use. Call before passes and before
  // transfers of whole tiles. Throws IoError.
  void settle();
  // Frees the host memory that read() uses. InternalError if write() has left changes there.
  void forget();

  // Start to move a whole tile. `memory`: bytes_of(tile) bytes of host memory, untouched by other
  // work until the caller has waited for the transfer.
  offload::SwapSpace::Transfer start_read(size_t tile, const Block& memory);
  offload::SwapSpace::Transfer start_write(size_t tile, const Block& memory);

  // stored(): the place of a settled tile, valid until the tile is written again. read_beside():
  // reads from there, on any thread.
  offload::SwapSpace::Stored stored(size_t tile) const { return extents_->stored(tile); }
  void read_beside(const offload::SwapSpace::Stored& stored, const Block& memory) const {
    extents_->read_beside(stored, memory);
  }

  // Bytes of the tiles that were moved. On a meta device: that would have been moved.
  offload::SwapTraffic traffic() const { return extents_->traffic(); }

 private:
  int64_t plane_offset(const Tile& tile, int plane) const;  // bytes from the start of the tile
  // Brings `tile` to cache_.
  void load(size_t tile);
  void flush();
  const std::string& name_of_group(size_t tile) const;

  const ShardGroups& groups_;
  Context& context_;
  const optim::States states_;
  std::vector<Tile> tiles_;
  ByGroup<std::string> names_;                     // by group, for the trace
  std::vector<bool> written_;                      // by tile: swap space holds its values
  std::unique_ptr<offload::SwapExtents> extents_;  // one per tile
  Block cache_;                                    // one tile, for read() and write()
  int64_t cached_ = -1;
  bool changed_ = false;
};

}  // namespace zinc::zero
