// zero/group/optimizer_shards.h: the master weights and optimizer states that a rank updates.
//
// A rank owns one range of every trained segment: its shard, or the whole segment where optimizer
// states are not sharded. The ranges that it owns of a group lie one after the other in flat
// buffers. So each range is one contiguous slice.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "optim/optimizer.h"
#include "zero/layout/planes.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

// Gives values of a slice that this rank owns, from slice.range.begin on. If they are in memory,
// the view has all of them; from swap space, at least one. The view is valid until the next call.
using OwnedViews = std::function<ConstView(const OwnedRange& slice)>;
// Such values, and how they are stored. Floats need no encoding: the view has their dtype.
struct OwnedValues {
  OwnedViews views;
  Encoding encoding{};
};

// Trained elements that this rank updates. `tier`: where `weights` and `states` are.
struct UpdatedRange : OwnedRange {
  // [range.size()] f32 (f64 models: f64; optim::States::weights): the values that the optimizer
  // updates. Absent in swap space.
  View weights;
  // The elements' states, as `encodings` store them. Absent in swap space.
  std::array<View, optim::kMaxOptimizerStates> states;
  std::array<Encoding, optim::kMaxOptimizerStates> encodings;
  // The tier and the dtype of the model's own copy of these weights. nvme: new values go to
  // take_updated().
  Tier model_tier = Tier::device;
  DType model_dtype = DType::f32;
  bool is_rounded = false;  // that copy is narrower than `weights`
  // [range.size()] that copy, on the device or in host memory. Absent if `weights` is the model's
  // copy.
  View model_weights;
};

// The model's own weights for an owned slice: [range.size()] in the group's dtype; empty if they
// are in swap space.
using ModelView = std::function<View(const OwnedRange& slice)>;

class OptimizerShards {
 public:
  // `split`: who owns which elements, and on which tier they live. Master weights exist if the
  // model has 16 bits, if the elements are off the device, or with `own_master`. On the tier nvme
  // `swapped` holds master weights and states; it must outlive this.
  OptimizerShards(const ShardGroups& groups, comm::Communicator& communicator, Context& context,
                  const optim::States& states, StateSplit split, SwappedShards* swapped = nullptr,
                  bool own_master = false);

  // This rank's part of a segment; the whole segment where states are not sharded.
  Range owned(const Segment& segment) const { return owned(segment, rank_); }
  // True if there are master weights: for any element of the group; for an owned slice.
  bool has_master(const ShardGroup& group) const;
  bool has_master(const OwnedRange& slice) const;
  // master(): the master weights of an owned slice, if has_master(). state(): one of the slice's
  // states, by plane, as encoding() stores it. Values in swap space come as
  // SwappedShards::read() gives them.
  View master(const OwnedRange& slice) const;
  View state(const OwnedRange& slice, int plane) const;
  // How a plane of the group is stored.
  Encoding encoding(const ShardGroup& group, int plane) const {
    return plane_encoding(states_, plane, group.wide_dtype());
  }
  // Writes one plane of an owned range. `values`: [range.size()] f32 (f64 models: f64) on the
  // device; rounded to nearest where states are narrower, encoded where they are in blocks (this
  // waits for the compute stream). range.begin is then a multiple of kNormChunk, and what lies
  // behind the range in its last chunk is padding. Does nothing for master weights that do not
  // exist. On the compute stream.
  void write(const ShardGroup& group, const Segment& segment, int plane, Range range,
             const ConstView& values);
  std::vector<UpdatedRange> slices(const ModelView& model) const;
  // Frees the host memory that master(), state() and write() use for swap space.
  void settle();

  // Copies the values of an owned range to `out` on the device, one tier after the other. On the
  // compute stream.
  void copy_own(const ShardGroup& group, const Segment& segment, Range range,
                const OwnedValues& values, const View& out);
  // Brings a parameter's values from their owners to every rank: flat [numel] into `out` on the
  // device. Collective if states are sharded. Waits for the compute stream.
  void read(const ShardGroup& group, const Placement& placement, const OwnedValues& values,
            View out);

 private:
  // write() of values in the plane's own encoding.
  void write_stored(const ShardGroup& group, const Segment& segment, int plane, Range range,
                    const ConstView& values);
  // The values of one plane in one tier: those of the elements that have it, which are one run.
  struct Plane {
    Block block;
    int64_t first = 0;  // OwnedRange::place of the first of them
  };
  // The buffers of a group in one tier.
  struct Buffers {
    Plane master;
    std::vector<Plane> states;
  };
  Plane make_plane(const ShardGroup& group, Tier tier, int plane);
  using ByTier = std::array<Buffers, kNumTiers>;
  Range owned(const Segment& segment, int rank) const;
  const Buffers& buffers_of(const OwnedRange& slice) const;
  // The slice in a buffer of values that are stored so.
  View view_of(const Plane& plane, const Encoding& encoding, const OwnedRange& slice) const;

  const ShardGroups& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  const optim::States states_;
  const StateSplit split_;
  int rank_;
  SwappedShards* swapped_;
  ByGroup<ByTier> buffers_;
};

}  // namespace zinc::zero
