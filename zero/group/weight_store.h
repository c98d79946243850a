// zero/group/weight_store.h: where model weights, master weights and optimizer states live.
//
//   model weights   on every rank                              gathered for use   stages
//   whole           whole                                      never              0 to 2
//   sharded         its shards, and persistent segments whole  group by group     3
//
// All calls come from the issuing thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/weight_encoding.h"
#include "comm/bucketed_collectives.h"
#include "comm/communicator.h"
#include "core/context.h"
#include "core/trace.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"
#include "zero/group/optimizer_shards.h"
#include "zero/group/parameter_shards.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

// The largest number of elements that pass through staging memory at once, to and from files.
inline constexpr int64_t kPieceNumel = int64_t{1} << 20;

using autograd::ReadValues;
using HasValues = std::function<bool(const autograd::Parameter& parameter, int plane)>;

struct WeightStoreOptions {
  bool shard_weights = false;          // the table above
  StateSplit split;                    // tiers of master weights and states
  optim::States states{.count = 2};    // states of the optimizer, per trained element
  bool shard_optimizer = false;        // a rank has only its shards of master weights and states
  int64_t bucket_numel = 500'000'000;  // elements per collective
  ParameterShardOptions parameters{};  // with sharded weights: where the shards live
  SwappedShards* swapped = nullptr;    // tier nvme: master weights and states; outlives the store
  bool overlap = false;                // gathers run on a stream of their own
  // With sharded weights: gather_for_use() frees unused gathered groups above this number of
  // gathered elements.
  int64_t max_live_numel = 1'000'000'000;
};

class WeightStore {
 public:
  // `groups`, `communicator` and `context` must outlive this. Values are undefined before load().
  WeightStore(const ShardGroups& groups, comm::Communicator& communicator, Context& context,
              const WeightStoreOptions& options);
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  // --- The model's side, called by the runner of the step program
  //
  // A pass begins. Frees the memory that reads and writes of values (below) keep for swap space.
  // Forgets the groups that read() asked for, unless the pass goes on from the one before, as
  // backward goes on from forward.
  void begin_pass(bool goes_on);
  // Allocates the group's arena and fills it from all ranks, behind the work on the compute stream.
  // Does nothing if the group is gathered or being gathered. `kind`: the name in the trace.
  // Collective. Throws CommError, IoError.
  void gather(int group, TraceKind kind);
  // The same for a use that no step program predicts. First frees unused groups until the gathered
  // elements fit WeightStoreOptions::max_live_numel.
  void gather_for_use(int group);
  // Frees the group's arena. Does nothing if the group is not gathered, or in use.
  void release(int group) noexcept;
  // Allows reads of the group's shards from swap space. They start in the order of these calls, as
  // far as there are buffers. Throws IoError.
  void read(int group);
  // The whole parameter on the device, for work on the compute stream until unpin(). The
  // parameter's group must be gathered.
  ConstView pin(ParameterIndex parameter);
  void unpin(ParameterIndex parameter) noexcept;
  // Frees all gathered groups. InternalError if a parameter is still pinned.
  void end_passes();

  // --- For the optimizer
  //
  // The slices that this rank updates, group after group. Their views stay until hand_over().
  const std::vector<UpdatedRange>& slices() const { return slices_; }
  // Takes updated values of a slice whose model_tier is nvme. `values`: [range.size()] model_dtype
  // in any memory tier, as work on `stream` leaves them. Ranges come in ascending order. Throws
  // IoError.
  void take_updated(int group, Range range, const ConstView& values, StreamRef stream);
  // An update begins. From now on a group is gathered, or used by a forward pass, only after
  // publish() was called for it. After the last group comes settle_updates(), which waits for the
  // disk. Throws IoError. `skipped`: no value changes, and settle_updates() is not called.
  void expect_updates(bool skipped);
  // Brings the group's new weights to every rank that keeps them whole. The group's update was
  // issued to the compute stream, or ends with the events `updated`. Work on the compute stream may
  // use the group after it has waited for `updated` and for the returned event. The order of these
  // calls is the same on all ranks. Collective.
  Event publish(int group, const std::vector<Event>& updated);
  void settle_updates();

  // --- Access for files and users: collective if the values are sharded, waits for the compute
  // stream
  //
  // The values that the optimizer works on (master weights, if there are any): flat [numel] f32
  // (f64 models: f64), on the context's device.
  void read_master(ParameterIndex parameter, View out);
  void read_state(ParameterIndex parameter, int state, View out);
  // The values of read_master() or read_state() for `range` of the group's arena: flat
  // [range.size()]. `range` is part of the parameter, in this rank's shard of its segment. Every
  // rank has its shard on every stage. Not collective.
  void read_own(ParameterIndex parameter, int plane, Range range, View out);
  // The same values in place, without a copy, in the dtype in which they are kept. Absent if the
  // host cannot read their memory. The caller must have waited for the work on the
  // compute stream.
  ConstView own_in_place(ParameterIndex parameter, int plane, Range range);
  // Reads values that are spread over the ranks as slices() are, such as gradients.
  void read_owned(ParameterIndex parameter, const OwnedValues& values, View out);
  void write_master(ParameterIndex parameter, ConstView values);
  // Loads values of all parameters, by plane: weights, then as many states as are given. A value is
  // converted once to f32 (f64 models: f64) and from there to the model's dtype, so every way of
  // sharding starts alike. `has`: false leaves a value as it is; an empty function means true. Each
  // rank reads what it keeps. Not collective.
  void load(const std::vector<ReadValues>& planes, const HasValues& has);

  // Gives the model's own values, whole, with the memory they lie in. Empty if they are sharded.
  // The store cannot be used afterwards.
  std::vector<std::pair<autograd::Parameter*, Tensor>> hand_over();

  // Traffic of the model's own weights in swap space.
  offload::SwapTraffic swap_traffic() const;

 private:
  // The state of a group's weights on this rank.
  enum class Residence : uint8_t {
    sharded,    // the rank's shards only; also where weights are whole
    gathering,  // a collective that fills the arena is under way
    unsharded,  // the arena holds the whole group, for work on the compute stream
  };
  struct GroupState {
    Block kept;   // the segments that this rank keeps whole
    Block arena;  // the other segments, while they are gathered
    Residence residence = Residence::sharded;
    comm::Work work;
    int pins = 0;
    bool is_outdated = false;    // the group's update is not published yet
    std::vector<Event> updated;  // the group's update: a gather waits for it
  };
  struct Use {
    Block values;  // [numel] in the group's dtype
    int count = 0;
  };

  static void become(GroupState& state, Residence to);

  // --- The places of values
  bool keeps_whole(SegmentKind kind) const { return shards_ == nullptr || is_persistent(kind); }
  // The bytes before `segment` among the segments of the group that this rank keeps whole, or among
  // the others, whichever `segment` is one of.
  int64_t bytes_before(const ShardGroup& group, const Segment& segment) const;
  // A range of `segment` in a block that holds all segments that are kept whole, or all others.
  View view_of(const ShardGroup& group, const Block& block, const Segment& segment,
               Range range) const;
  // A range of a segment as this rank keeps it: the segment, or this rank's shard. A shard is in
  // the shard's tier, and not in swap space.
  View kept_view(const ShardGroup& group, const Segment& segment, Range range) const;
  // A range of a segment, while the group can be used.
  View arena_view(const ShardGroup& group, SegmentKind kind, Range range) const;
  // The model's own values of a slice; absent if they are in swap space.
  View model_view(const OwnedRange& slice) const;
  // The values that the optimizer works on; of a frozen slice the model's values.
  View master_view(const OwnedRange& slice);
  OwnedValues masters();
  OwnedValues values_of(int plane);

  // --- Gathers
  //
  bool offloads() const { return options_.parameters.tier != Tier::device; }
  // The bytes that a rank sends when `bytes` are gathered.
  int64_t sent_bytes(int64_t bytes) const;
  StreamRef gather_stream();
  void gather(const ShardGroup& group, TraceKind kind);
  void fill(const ShardGroup& group, TraceKind kind);
  // The rank's shards from their tier to their place in the arena.
  void bring(const ShardGroup& group, StreamRef stream);
  // Starts reads for the groups that were asked for and are not gathered yet.
  void read_ahead();
  // After a gather that failed or is not needed: the work it issued ends before the arena's memory
  // is used again.
  void abandon(const ShardGroup& group) noexcept;
  void reshard(const ShardGroup& group) noexcept;
  void await_gather(GroupState& state);
  // For a use that no step program predicts: frees groups that nothing uses now, until `group` fits
  // under the bound or no such group is left.
  void make_room(const ShardGroup& group);

  // --- Values in and out
  //
  // The whole parameter for a use: [shape] in the group's dtype on the device. `stored` is the
  // parameter as it is kept, on the device. A quantized parameter is decoded to memory that lasts
  // until end_use(); uses at the same time share it. On the compute stream.
  ConstView begin_use(ParameterIndex parameter, const ConstView& stored);
  void end_use(ParameterIndex parameter) noexcept;
  // Decodes a range of a quantized segment: [range.size()] in the group's dtype on the device,
  // valid until the next call or forget_decoded(). `stored`: encoded bytes in any memory tier. On
  // the compute stream.
  View decoded(const ShardGroup& group, Range range, const ConstView& stored);
  void forget_decoded() { decoded_.reset(); }
  // The range of a parameter that this rank keeps in the model's dtype.
  Range kept_range(const ShardGroup& group, const Placement& placement) const;
  // Writes the values of a kept range to the model's own weights. A quantized segment takes encoded
  // bytes.
  void store_model(const ShardGroup& group, const Segment& segment, Range range,
                   const ConstView& values);
  // The same, and the owned part to the master weights.
  void store(const ShardGroup& group, const Placement& placement, Range range,
             const ConstView& values);
  void load(const ShardGroup& group, const Placement& placement, Range range,
            const std::vector<ReadValues>& planes, const HasValues& has);
  // Loads the kept range of a parameter in a quantized segment.
  void load_encoded(const ShardGroup& group, const Placement& placement, const ReadValues& read);

  const ShardGroups& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  const WeightStoreOptions options_;
  OptimizerShards optimizer_;
  comm::BucketedCollectives collectives_;
  std::unique_ptr<ParameterShards> shards_;  // null: weights are whole
  ByGroup<GroupState> states_;
  std::vector<UpdatedRange> slices_;
  std::vector<int> wanted_;                  // groups, in the order of read()
  int64_t live_numel_ = 0;                   // elements of arenas that are there or under way
  std::map<std::pair<int, int>, Use> uses_;  // by group, position: quantized parameters in use
  Block decoded_;
};

}  // namespace zinc::zero
