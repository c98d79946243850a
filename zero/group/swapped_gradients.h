// zero/group/swapped_gradients.h: a rank's sums of gradients in swap space, behind a few buffers in
// host memory.
//
// Note [Gradients on NVMe]
// A group's sums leave the device when its reduction is issued: a copy brings them tile by tile to
// buffers in host memory, from which they are written while backward goes on below. Where the next
// micro-batch adds to them, they are read ahead in the order of reductions, as far as there are
// buffers, copied to the device before the group's next reduction, and leave again. So sums are
// made in the order and by the kernels that make them where they stay on the device. For each
// direction there are two buffers of one tile: one is copied while the other one is written, or
// read. What moves depends on the order of calls alone, never on timing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "core/stream.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

struct SwappedGradientsOptions {
  int64_t tile_numel = 0;  // at most; the tiles are those of optimizer_tiles()
  DType dtype = DType::f32;
  std::vector<int> order;  // groups, as they are reduced
  bool returns = false;    // sums come back for the micro-batches after the first
  SwapSettings swap;
};

// One thread: that which issues work. On a meta device nothing is opened or moved. What throws
// IoError says so; the sums of the step are lost then.
class SwappedGradients {
 public:
  // Takes swap space and buffers. Throws IoError.
  SwappedGradients(const std::vector<ShardGroup>& groups, const comm::Communicator& communicator,
                   Context& context, const SwappedGradientsOptions& options);
  ~SwappedGradients();
  SwappedGradients(const SwappedGradients&) = delete;
  SwappedGradients& operator=(const SwappedGradients&) = delete;

  // The elements of a tile on the device, [tile.range] of the group's arena.
  using OnDevice = std::function<View(const Tile& tile)>;

  // A group's sums leave, as work issued to the compute and the reduce stream leaves them. The
  // event: they have left the device. Waits where buffers are full. Throws IoError.
  Event send(int group, const OnDevice& sums);
  // Micro-batches begin, the first of a step or others, for which sums come back where they do so
  // at all. Throws IoError.
  void begin(bool first);
  // The group's turn: its sums to the device, behind what was issued to the compute stream. The
  // event: they are there. Waits for the disk. Throws IoError.
  Event bring(int group, const OnDevice& sums);

  // Starts the transfers that can be started; waits for nothing. Throws IoError.
  void advance();
  // Whether all that was sent of a group is in swap space; makes progress. Throws IoError.
  bool has_arrived(int group);
  // Waits for that. Throws IoError.
  void await(int group);
  void await_all();

  // Of a group that has arrived, the first sums of part of one shard: as many as one tile holds, in
  // host memory until the next call. Waits. Throws IoError.
  ConstView read(const ShardGroup& group, Range range) { return tiles_.read(group, range, 0); }
  // Gives back what read() took, before sums leave again.
  void forget() { tiles_.forget(); }

  // Tiles that have arrived; by whom they are read then waits for the transfer.
  const std::vector<Tile>& tiles() const { return tiles_.tiles(); }
  int64_t largest_tile_bytes() const { return tiles_.largest_tile_bytes(); }
  View values(size_t tile, const Block& memory) const {
    return tiles_.plane(tiles()[tile], memory, 0);
  }
  offload::SwapSpace::Transfer start_read(size_t tile, const Block& memory) {
    return tiles_.start_read(tile, memory);
  }

  SwapTraffic traffic() const { return tiles_.traffic(); }

 private:
  // On its way to swap space: filled, then written.
  struct Outgoing {
    Block memory;
    std::optional<size_t> tile{};
    bool is_written = false;  // the write was started
    Event filled;             // what the copy-out stream puts here is here
    offload::SwapSpace::Transfer transfer{};
  };
  struct Incoming {
    Block memory;
    Event left;  // what the copy-in stream takes from here is taken
    offload::SwapSpace::Transfer transfer{};
  };

  std::vector<size_t> tiles_of(int group) const;
  void start_write(Outgoing& buffer);
  // Waits until the buffer's tile is in swap space.
  void land(Outgoing& buffer);
  Outgoing* holder_of(size_t tile);
  // Starts the reads for which buffers are free; with `one`, waits until one can be.
  void start_reads(bool one);

  Context& context_;
  SwappedShards tiles_;
  std::vector<size_t> in_order_;  // tiles, as their groups are reduced
  std::array<Outgoing, 2> outgoing_;
  size_t next_outgoing_ = 0;
  std::vector<Incoming> incoming_;  // empty: nothing comes back
  size_t next_read_ = 0;            // in in_order_
  size_t next_brought_ = 0;
};

}  // namespace zinc::zero
