// zero/group/weight_store.h: where model weights, master weights and optimizer states live.
//
// One implementation per way of sharding, chosen once when the engine is made; nothing else asks
// for the stage. All calls come from the issuing thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "comm/communicator.h"
#include "core/context.h"
#include "core/trace.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"
#include "zero/group/parameter_shards.h"
#include "zero/layout/parameter_table.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

// Gives values from the start of [range) of a group's arena on, within what this rank owns of a
// segment and in one tier: all of them in memory, at least one from swap space, until the next
// call.
using OwnedValues =
    std::function<ConstView(const ShardGroup& group, const Segment& segment, Range range)>;

// Where a parameter's values come from: elements [begin, begin + out.numel()), flat row-major, to
// contiguous host memory, in out's dtype.
using ReadValues =
    std::function<void(const autograd::Parameter& parameter, int64_t begin, View out)>;

using HasValues = std::function<bool(const autograd::Parameter& parameter, int plane)>;

// One contiguous range of trained elements that this rank updates, all of one segment.
struct UpdateSlice {
  int group = 0;
  SegmentKind segment = SegmentKind::trained;
  Range range;               // of the group's arena
  Tier tier = Tier::device;  // of weights and states
  // [range] f32 (f64 models: f64): the values that the optimizer updates; absent in swap space
  View weights;
  std::array<View, optim::kMaxOptimizerStates> states;  // [range] dtype and tier of weights
  // Where the model's copy lives, in its dtype: nvme: it is handed to take_updated().
  Tier model_tier = Tier::device;
  DType model_dtype = DType::f32;
  // [range] that copy, on device or host; absent where `weights` serves it
  View model_weights;
};

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  // --- the model's side, called by the runner of the step program
  // A pass begins. What reads and writes of the values below have kept in memory for the next one is
  // given back. What was asked for by read() is asked for anew, but where the pass goes on from the
  // one before, as backward does.
  virtual void begin_pass(bool goes_on) = 0;
  // The group's arena is taken and filled behind what was issued to the compute stream; nothing
  // where it is there, or on its way. `kind`: what the trace calls it. Throws CommError, IoError.
  virtual void gather(int, TraceKind) {}
  // The same for a use that no program foresees: within WeightStoreOptions::max_live_numel.
  virtual void gather_for_use(int) {}
  // Gives the arena back; nothing where it is not there, or in use.
  virtual void release(int) noexcept {}
  // The group's shards may come from swap space, behind those that were asked for before, as far as
  // there are buffers. Throws IoError.
  virtual void read(int) {}
  // The whole parameter, in place for work issued to the compute stream until unpin. Its group was
  // gathered.
  virtual ConstView pin(ParameterIndex parameter) = 0;
  virtual void unpin(ParameterIndex parameter) noexcept = 0;
  // Gives back what was gathered for passes. InternalError where a parameter is still pinned.
  virtual void end_passes() = 0;

  // --- the optimizer's side
  virtual std::vector<UpdateSlice> slices() = 0;
  // Those of one tier.
  std::vector<UpdateSlice> slices_in(Tier tier) {
    std::vector<UpdateSlice> found = slices();
    std::erase_if(found, [tier](const UpdateSlice& slice) { return slice.tier != tier; });
    return found;
  }
  // Updated values of a range of a slice with model_tier nvme, in model_dtype and any tier that is
  // memory, as work issued to `stream` leaves them. In ascending order. Throws IoError.
  virtual void take_updated(int group, Range range, const ConstView& values, StreamRef stream) = 0;
  // After the update of all slices was issued: weights reach every rank that keeps them whole.
  virtual void publish() = 0;

  // In the place of publish() where the update goes on beside the next forward pass: see
  // Note [Updates beside the next forward pass]. From expect_updates() on no group is gathered or
  // used until publish_group() was called for it, in one order on all ranks; after the last group
  // comes settle_updates(), which waits. Throws IoError. `skipped`: no value is going to change,
  // and settle_updates() does not come.
  virtual void expect_updates(bool skipped) { static_cast<void>(skipped); }
  // The update of the group's slices was issued and is over behind `updated`; work issued to the
  // compute stream may use the group behind these and the result.
  virtual Event publish_group(int group, const std::vector<Event>& updated) = 0;
  virtual void settle_updates() {}

  // --- access for files and users; collective where the values are sharded, waits
  // What the optimizer works on (master weights where there are any), flat [numel] in memory that
  // the host can read, f32 (f64 for f64 models).
  virtual void read_master(ParameterIndex parameter, View out) = 0;
  virtual void read_state(ParameterIndex parameter, int state, View out) = 0;
  // What read_master() or read_state() gives of [range) of the parameter's arena, which lies in this
  // rank's shard of its segment: flat [range.size()]. Every rank has its shard on every stage: not
  // collective.
  virtual void read_own(ParameterIndex parameter, int plane, Range range, View out) = 0;
  // Where those values lie, if that is memory that the host can read, in the dtype that read_own()
  // gives; absent elsewhere. Of what was issued to the compute stream, and is over.
  virtual ConstView own_in_place(ParameterIndex parameter, int plane, Range range) = 0;
  // Anything that is spread over the ranks as slices() are.
  virtual void read_owned(ParameterIndex parameter, const OwnedValues& values, View out) = 0;
  virtual void write_master(ParameterIndex parameter, ConstView values) = 0;
  // Values of all parameters, by plane: weights, and states as far as they are given. Converted once
  // to f32 (f64 for f64 models) and from there to the model's dtype, so that every way of sharding
  // starts alike. Not collective: each rank reads what it keeps.
  // What `has` says no to stays as it is; an empty one: there are values for everything.
  virtual void load(const std::vector<ReadValues>& planes, const HasValues& has) = 0;

  // The model's own values, whole, and with them the memory they lie in; the store is at its end.
  // Empty where they are sharded.
  virtual std::vector<std::pair<autograd::Parameter*, Tensor>> hand_over() { return {}; }

  // Of the model's own weights, where they lie in swap space.
  virtual SwapTraffic swap_traffic() const { return {}; }
};

struct WeightStoreOptions {
  StateSplit split;                    // of master weights and states
  int num_states = 2;                  // of the optimizer, per trained element
  bool shard_optimizer = false;        // master weights and states: own shards only
  int64_t bucket_numel = 500'000'000;  // elements per collective
  ParameterShardOptions parameters{};  // sharded weights: where the shards live
  SwappedShards* swapped = nullptr;    // where they are with the tier nvme; outlives the store
  bool overlap = false;                // gathers beside compute
  // Sharded weights: gather_for_use() gives back what nobody uses where more would be gathered.
  int64_t max_live_numel = 1'000'000'000;
};

// Values are undefined before load().

// Model weights whole on every rank (stages 0 to 2).
std::unique_ptr<WeightStore> make_whole_weights(const std::vector<ShardGroup>& groups,
                                                comm::Communicator& communicator, Context& context,
                                                const WeightStoreOptions& options);

// Every rank keeps its shards, and the persistent segments whole; a group is gathered for its use
// (stage 3).
std::unique_ptr<WeightStore> make_sharded_weights(const std::vector<ShardGroup>& groups,
                                                  comm::Communicator& communicator,
                                                  Context& context,
                                                  const WeightStoreOptions& options);

}  // namespace zinc::zero
