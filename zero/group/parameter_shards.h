// zero/group/parameter_shards.h: a rank's own shards of the parameters that are gathered for use.
// Between uses the shards are on the device, in host memory or in swap space.
//
// Note [Buffers of swapped parameters]
// Shards in swap space pass through `buffer_count` buffers of one tile each, in host memory.
// - Before use: reads start in the order of the step program, as buffers become free. bring() waits
//   for the reads of one group and copies them to the device. Then the group's buffers are free
//   again.
// - After an update: the same buffers collect new values, tile by tile in ascending order. A full
//   tile is written while the update goes on.
// - If updates and passes overlap: a tile is read only after its new values have been written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "zero/layout/shard_group.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

struct ParameterShardOptions {
  Tier tier = Tier::device;
  // The remaining members are for the tier nvme.
  offload::SwapSettings swap;
  int64_t buffer_count = 5;
  int64_t buffer_numel = 100'000'000;  // elements per tile, at most
  int64_t max_in_host = 0;             // elements: the first groups that fit stay in host memory
  // True: take_updated() is called while forward or backward reads shards, and gets two separate
  // buffers.
  bool updates_during_passes = false;
  // True: a tile may be updated in two parts, with other groups' tiles between them (Note [Split
  // states]). It keeps its buffer until then, so there are two buffers at least.
  bool updates_in_parts = false;
};

// Called from the issuing thread only.
class ParameterShards {
 public:
  ParameterShards(const ShardGroups& groups, const comm::Communicator& communicator,
                  Context& context, const ParameterShardOptions& options);
  ~ParameterShards();

  Tier tier_of(const ShardGroup& group) const;
  // This rank's range of a segment.
  Range own(const Segment& segment) const;
  // The stored values of a range of this rank's shard, on the device or in host memory.
  // InternalError on the tier nvme.
  View view(const ShardGroup& group, const Segment& segment, Range range) const;
  // The stored values of a range of this rank's shard, on any tier. From swap space as
  // SwappedShards::read() gives them: the view is valid until the next call. The call waits for the
  // disk, and for all reads that are under way.
  View read(const ShardGroup& group, const Segment& segment, Range range);
  // Writes a range of this rank's shard. `values`: [range] on the device, any float dtype; encoded
  // bytes for a quantized segment. On the compute stream. Waits if the shard is not on the device.
  void write(const ShardGroup& group, const Segment& segment, Range range, const ConstView& values);
  // Brings the values of write() to swap space. Call before bring().
  void settle();

  // Starts reads for these groups, the first group first, as far as buffers are free.
  void read_ahead(const std::vector<int>& groups);
  // Copies the group's shards from host memory or swap space to place(segment) on the device, on
  // `stream`. Waits for the disk. Throws IoError. Not for the tier device.
  using Destination = std::function<View(const Segment& segment)>;
  void bring(const ShardGroup& group, const Destination& place, StreamRef stream);

  // Takes updated values of a group on the tier nvme. `values`: [range.size()] in device or host
  // memory, as work on `stream` leaves them. Ranges come in ascending order within a tile. A tile
  // is completed before the next tile of the group begins. With `updates_in_parts` one tile of all
  // groups may stay incomplete while tiles of other groups come. Throws IoError.
  void take_updated(const ShardGroup& group, Range range, const ConstView& values,
                    StreamRef stream);
  // From now on a trained tile is not read before its new values have been written.
  void expect_updates();
  // Waits until all updated values are in swap space. Throws IoError.
  void finish_update();

  offload::SwapTraffic traffic() const {
    return swapped_ ? swapped_->traffic() : offload::SwapTraffic{};
  }

 private:
  struct Buffer {
    Block memory;
    std::optional<size_t> tile;  // the tile that is held, being read, or being filled by an update
    bool is_update = false;
    Event filled;                   // behind the update's copies to this buffer so far
    std::optional<size_t> written;  // the tile whose new values are being written
    offload::SwapSpace::Transfer transfer;
    Event left;  // behind the last copy from this buffer
  };

  // For this rank's shards of a group: the bytes before `segment`; all elements; all bytes.
  int64_t bytes_before(const ShardGroup& group, const Segment& segment) const;
  int64_t own_numel(const ShardGroup& group) const;
  int64_t own_bytes(const ShardGroup& group) const;
  Buffer* holder_of(size_t tile);
  // A buffer without a tile: a free one, else one that is the least needed.
  Buffer& free_buffer(const ShardGroup& group);
  Buffer& update_buffer(const ShardGroup& group, size_t tile);
  void start_read(Buffer& buffer, size_t tile);
  // Waits for the buffer's transfer. If the transfer failed, the buffer holds no tile.
  void finish(Buffer& buffer);
  void write_behind(Buffer& buffer, StreamRef stream);
  // Waits for the buffer's transfer. New values that it wrote may be read afterwards.
  void land(Buffer& buffer);
  // True if the tile can be read now. `wait`: first waits for a write of the tile that is under
  // way.
  bool is_current(size_t tile, bool wait);
  void forget();  // drops the tiles that were read ahead

  const ShardGroups& groups_;
  const comm::Communicator& communicator_;
  Context& context_;
  Tier tier_;
  ByGroup<Block> shards_;               // [own_bytes()]; empty: in swap space
  ByGroup<std::vector<size_t>> tiles_;  // indices of the group's tiles in swapped_
  std::unique_ptr<SwappedShards> swapped_;
  std::vector<Buffer> buffers_;
  std::vector<Buffer> update_buffers_;  // empty: updates use buffers_
  size_t next_update_ = 0;
  std::vector<bool> outdated_;  // by tile: its new values are not written yet
};

}  // namespace zinc::zero
