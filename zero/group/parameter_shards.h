// zero/group/parameter_shards.h: a rank's own shards of the parameters that are gathered for use,
// on the tier where they live between uses: the device, host memory, or swap space.
//
// Note [Buffers of swapped parameters]
// From swap space shards pass through `buffer_count` buffers in host memory, each of one tile.
// Reads are started in the order of the step program as buffers come free; bring() waits for those of
// one group and copies them to the device, after which their buffers are free again. After an
// update the same buffers collect new values, tile by tile in ascending order, and are written
// behind. Where updates go on while shards are read for use, a tile is read once its new values
// have been written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "zero/layout/shard_group.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

struct ParameterShardOptions {
  Tier tier = Tier::device;
  // The rest is for the tier nvme.
  SwapSettings swap;
  int64_t buffer_count = 5;
  int64_t buffer_numel = 100'000'000;  // elements of a tile at most
  int64_t max_in_host = 0;             // elements: the first groups that fit stay in host memory
  // take_updated() comes while shards are read for use, in forward or in backward, and gets two
  // buffers of its own.
  bool updates_during_passes = false;
};

// One thread: that which issues work.
class ParameterShards {
 public:
  ParameterShards(const std::vector<ShardGroup>& groups, const comm::Communicator& communicator,
                  Context& context, const ParameterShardOptions& options);
  ~ParameterShards();

  Tier tier_of(const ShardGroup& group) const;
  // An own range of a segment where it lies: not on the tier nvme.
  View view(const ShardGroup& group, const Segment& segment, Range range) const;
  // The values of an own range; from swap space as SwappedShards::read() gives them, which
  // waits, also for what is read ahead.
  View read(const ShardGroup& group, const Segment& segment, Range range);
  // `values`: of the range, on the device, of any float dtype; encoded where the segment is. On the
  // compute stream; waits where the shard is not on the device.
  void write(const ShardGroup& group, const Segment& segment, Range range, const ConstView& values);
  // Everything written by write() is where it belongs. Comes before bring().
  void settle();

  // Starts what reading can be started for these groups, the first ones first.
  void read_ahead(const std::vector<int>& groups);
  // The group's own shards to place(segment) on the device, issued to `stream`: not on the tier
  // device. Waits for the disk. Throws IoError.
  using Place = std::function<View(const Segment& segment)>;
  void bring(const ShardGroup& group, const Place& place, StreamRef stream);

  // Updated values of an own range of a group on the tier nvme, in device or host memory as work
  // issued to `stream` leaves them. Ranges come in ascending order within a tile, and all of a tile
  // before the next of the same group. Throws IoError.
  void take_updated(const ShardGroup& group, Range range, const ConstView& values,
                    StreamRef stream);
  // No tile that is trained is read from swap space before its new values were written.
  void expect_updates();
  // All updated values are in swap space. Throws IoError.
  void finish_update();

  SwapTraffic traffic() const { return swapped_ ? swapped_->traffic() : SwapTraffic{}; }

 private:
  static constexpr int kNone = -1;
  struct Buffer {
    Block memory;
    int tile = kNone;  // whose values are here or on their way
    bool is_update = false;
    Event filled;         // what an update has left here so far
    int written = kNone;  // tile whose new values are on their way to the disk
    offload::SwapSpace::Transfer transfer;
    Event left;  // what was copied from here has left
  };

  Range own(const Segment& segment) const;
  // Of the rank's shards of a group: the bytes before `segment`, and all elements and bytes.
  int64_t bytes_before(const ShardGroup& group, const Segment& segment) const;
  int64_t own_numel(const ShardGroup& group) const;
  int64_t own_bytes(const ShardGroup& group) const;
  Buffer* holder_of(int tile);
  // A buffer without a tile: one that is free, else one whose values are the least needed.
  Buffer& free_buffer(const ShardGroup& group);
  Buffer& update_buffer(const ShardGroup& group, int tile);
  void start_read(Buffer& buffer, int tile);
  // Waits for the buffer's transfer. Where that failed, no tile's values are there.
  void finish(Buffer& buffer);
  void write_behind(Buffer& buffer, StreamRef stream);
  // Waits for the buffer's transfer; new values that it wrote may be read then.
  void land(Buffer& buffer);
  // The tile has values to read. True: waits for its write, which was started.
  bool is_current(int tile, bool wait);
  void forget();  // what was read ahead

  const std::vector<ShardGroup>& groups_;
  const comm::Communicator& communicator_;
  Context& context_;
  Tier tier_;
  std::vector<Block> shards_;            // by group: [own bytes]; empty in swap space
  std::vector<std::vector<int>> tiles_;  // by group
  std::unique_ptr<SwappedShards> swapped_;
  std::vector<Buffer> buffers_;
  std::vector<Buffer> update_buffers_;  // empty: updates use buffers_
  size_t next_update_ = 0;
  std::vector<bool> outdated_;  // by tile
};

}  // namespace zinc::zero
