// zero/group/swapped_gradients.h: keeps a rank's gradient sums in swap space, with a few buffers in
// host memory.
//
// Note [Gradients on NVMe]
// A group's sums leave the device when the group's reduction is issued. A copy brings them tile by
// tile to buffers in host memory. They are written from there while backward goes on.
//
// If the next micro-batch adds to the sums, they come back. They are read ahead in the order of
// reductions, as far as there are buffers, and copied to the device before the group's next
// reduction. Then they leave again. So sums are made in the same order and by the same kernels as
// on the device.
//
// Each direction has two buffers of one tile. One is copied while the other is written or read. The
// bytes that move depend on the order of calls alone, never on timing.
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
#include "zero/group/sums_away.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

struct SwappedGradientsOptions {
  int64_t tile_numel = 0;  // elements per tile, at most: as for optimizer_tiles()
  DType dtype = DType::f32;
  std::vector<int> order;          // all groups, in the order of their reductions
  std::vector<OwnedRange> slices;  // that this rank updates
  bool returns = false;            // true: sums come back for the micro-batches after the first
  offload::SwapSettings swap;
};

// On a meta device nothing is opened or moved. After an IoError the sums of the step are lost.
class SwappedGradients final : public SumsAway {
 public:
  // Takes swap space and buffers. Throws IoError.
  SwappedGradients(const ShardGroups& groups, const comm::Communicator& communicator,
                   Context& context, const SwappedGradientsOptions& options);
  ~SwappedGradients() override;
  SwappedGradients(const SwappedGradients&) = delete;
  SwappedGradients& operator=(const SwappedGradients&) = delete;

  // Work for each slice of the step's sums, while the slice is on the device. It may read the slice
  // in work on `stream`.
  using OnSums =
      std::function<void(const OwnedRange& slice, const ConstView& sums, StreamRef stream)>;
  void on_sums(OnSums on_sums) { on_sums_ = std::move(on_sums); }

  // Waits if the buffers are full.
  Event send(int group, const OnDevice& sums, Turn turn) override;
  // For the first micro-batches of a step no sums come back. For others starts to read the sums, if
  // they come back at all.
  void begin(bool first) override;
  // Issues the copies of a group's sums back to the device, behind the work on the compute stream.
  // Returns the event behind these copies. Groups come in `order`. Waits for the disk. Throws
  // IoError.
  Event bring(int group, const OnDevice& sums);

  void advance() override;
  bool has_arrived(int group) override;
  // The calling thread waits.
  void await(int group, StreamRef) override;
  void await_all() override;

  // As many sums of a group that has arrived as one tile holds. Waits.
  ConstView read(const OwnedRange& slice) override {
    return tiles_.read(groups_[slice.group], slice.range, 0);
  }
  void discard(int) override {}
  // Call before sums leave again.
  void end_step() override { tiles_.forget(); }

  // For a caller that reads whole tiles itself, once they have arrived. The caller waits for the
  // transfer.
  const std::vector<Tile>& tiles() const { return tiles_.tiles(); }
  int64_t largest_tile_bytes() const { return tiles_.largest_tile_bytes(); }
  View values(size_t tile, const Block& memory) const {
    return tiles_.plane(tiles()[tile], memory, 0);
  }
  offload::SwapSpace::Transfer start_read(size_t tile, const Block& memory) {
    return tiles_.start_read(tile, memory);
  }

  offload::SwapTraffic traffic() const { return tiles_.traffic(); }

 private:
  // A buffer on the way to swap space: filled by a copy, then written.
  struct Outgoing {
    Block memory;
    std::optional<size_t> tile{};
    bool is_written = false;  // the write has started
    Event filled;             // behind the copy-out stream's copy to this buffer
    offload::SwapSpace::Transfer transfer{};
  };
  struct Incoming {
    Block memory;
    Event left;  // behind the copy-in stream's copy from this buffer
    offload::SwapSpace::Transfer transfer{};
  };

  std::vector<size_t> tiles_of(int group) const;
  void start_write(Outgoing& buffer);
  // Waits until the buffer's tile is in swap space.
  void land(Outgoing& buffer);
  Outgoing* holder_of(size_t tile);
  // Starts the reads for which buffers are free. `one`: waits until at least one has started.
  void start_reads(bool one);

  const ShardGroups& groups_;
  Context& context_;
  const std::vector<OwnedRange> slices_;
  OnSums on_sums_;
  SwappedShards tiles_;
  std::vector<size_t> in_order_;  // tiles, in the order of reductions
  std::array<Outgoing, 2> outgoing_;
  size_t next_outgoing_ = 0;
  std::vector<Incoming> incoming_;  // empty: nothing comes back
  size_t next_read_ = 0;            // index into in_order_
  size_t next_brought_ = 0;
};

}  // namespace zinc::zero
