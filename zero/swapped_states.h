// zero/swapped_states.h: master weights and optimizer states in swap space.
//
// A rank's owned range of every trained segment is cut into tiles. A tile's values lie together:
// the master weights first, then one state after the other (its planes), so that the step moves a
// tile with one read and one write. Whole tiles are what is read, changed and written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "core/view.h"
#include "offload/storage.h"
#include "offload/swap_space.h"
#include "zero/shard_group.h"

namespace zinc::zero {

struct SwapSettings {
  std::string directory;
  offload::StorageOptions storage;
  int64_t tile_numel = 1'000'000'000;  // elements at most; rounded up to kNormChunk
  bool verify = true;
};

// One thread: that which issues work. Host tier; on a meta device nothing is opened or moved.
class SwappedStates {
 public:
  struct Tile {
    int group = 0;
    SegmentKind segment = SegmentKind::decay;
    Range range;  // of the group's arena
    DType dtype = DType::f32;
    int64_t plane_bytes() const { return range.size() * size_of(dtype); }
  };
  static constexpr int kMasterPlane = 0;
  static constexpr int state_plane(int state) { return 1 + state; }

  // Takes the space. Values are zero until they are written. Throws IoError.
  SwappedStates(const std::vector<ShardGroup>& groups, const comm::Communicator& communicator,
                Context& context, int num_states, const SwapSettings& settings);
  ~SwappedStates();

  const std::vector<Tile>& tiles() const { return tiles_; }
  int num_planes() const { return num_planes_; }
  int64_t bytes_of(const Tile& tile) const { return num_planes_ * tile.plane_bytes(); }
  int64_t largest_tile_bytes() const;
  // One plane of a tile that lies in host memory.
  View plane(const Tile& tile, const Block& memory, int index) const;

  // Values of a range of one segment, on any rank's tiles of its own, in host memory until the next
  // call. Waits.
  View read(const ShardGroup& group, Range range, int plane);
  // `values`: [range.size()] on the device. Waits.
  void write(const ShardGroup& group, Range range, int plane, const ConstView& values);
  // Everything written by write() is in the space, and its buffers are given back. Comes before
  // transfers of whole tiles.
  void settle();

  // Whole tiles, from and to memory of bytes_of(tile) that no other work touches meanwhile; the
  // transfer is waited for by the caller.
  offload::SwapSpace::Transfer start_read(size_t tile, const Block& memory);
  offload::SwapSpace::Transfer start_write(size_t tile, const Block& memory);

  // Moved so far; on a meta device asked for so far.
  int64_t bytes_read() const { return space_ == nullptr ? meta_read_ : space_->bytes_read(); }
  int64_t bytes_written() const {
    return space_ == nullptr ? meta_written_ : space_->bytes_written();
  }

 private:
  // Makes `tile` the one in the cache.
  void load(size_t tile);
  void flush();

  Context& context_;
  const int num_planes_;
  std::vector<Tile> tiles_;
  std::vector<bool> written_;  // by tile: the space holds values
  int64_t bytes_ = 0;          // of the space
  std::unique_ptr<offload::Storage> storage_;
  std::unique_ptr<offload::SwapSpace> space_;
  Block cache_;
  Block values_;  // what read() gave
  int64_t cached_ = -1;
  bool changed_ = false;
  int64_t meta_read_ = 0;
  int64_t meta_written_ = 0;
};

}  // namespace zinc::zero
