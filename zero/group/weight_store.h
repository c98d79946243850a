// zero/group/weight_store.h: where model weights, master weights and optimizer states live.
//
// The engine makes one of two stores: make_whole_weights() or make_sharded_weights(). No other
// object asks for the stage. All calls come from the issuing thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
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
#include "zero/group/optimizer_shards.h"
#include "zero/group/parameter_shards.h"
#include "zero/layout/shard_group.h"
#include "zero/layout/state_split.h"
#include "zero/tiers/swapped_shards.h"

namespace zinc::zero {

// Reads elements [begin, begin + out.numel()) of a parameter, flat row-major, in out's dtype. out:
// contiguous host memory.
using ReadValues =
    std::function<void(const autograd::Parameter& parameter, int64_t begin, View out)>;

using HasValues = std::function<bool(const autograd::Parameter& parameter, int plane)>;

struct WeightStoreOptions {
  StateSplit split;                    // where master weights and states live
  optim::States states{.count = 2};    // of the optimizer, per trained element
  bool shard_optimizer = false;        // a rank has its shards of master weights and states only
  int64_t bucket_numel = 500'000'000;  // elements per collective
  ParameterShardOptions parameters{};  // with sharded weights: where the shards live
  SwappedShards* swapped = nullptr;    // tier nvme: master weights and states; outlives the store
  bool overlap = false;                // gathers run on a stream of their own
  // With sharded weights: the elements of gathered groups above which gather_for_use() frees unused
  // ones.
  int64_t max_live_numel = 1'000'000'000;
};

class WeightStore {
 public:
  virtual ~WeightStore() = default;
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  // --- The model's side, called by the runner of the step program
  //
  // A pass begins. Frees the memory that reads and writes of values (below) keep for swap space.
  // Forgets the groups that read() asked for, unless the pass goes on from the one before, as
  // backward goes on from forward.
  virtual void begin_pass(bool goes_on) = 0;
  // Allocates the group's arena and fills it from all ranks, behind the work on the compute stream.
  // Does nothing if the group is gathered or being gathered. `kind`: the name in the trace.
  // Collective. Throws CommError, IoError.
  virtual void gather(int, TraceKind) {}
  // The same for a use that no step program predicts. First frees unused groups until the gathered
  // elements fit WeightStoreOptions::max_live_numel.
  virtual void gather_for_use(int) {}
  // Frees the group's arena. Does nothing if the group is not gathered, or in use.
  virtual void release(int) noexcept {}
  // Allows reads of the group's shards from swap space. They start in the order of these calls, as
  // far as there are buffers. Throws IoError.
  virtual void read(int) {}
  // The whole parameter on the device, for work on the compute stream until unpin(). Its group must
  // be gathered.
  virtual ConstView pin(ParameterIndex parameter) = 0;
  virtual void unpin(ParameterIndex parameter) noexcept = 0;
  // Frees all gathered groups. InternalError if a parameter is still pinned.
  virtual void end_passes() = 0;

  // --- The optimizer's side
  //
  // The slices that this rank updates, group after group. Their views stay until hand_over().
  const std::vector<UpdateSlice>& slices() const { return slices_; }
  // Takes updated values of a slice whose model_tier is nvme. `values`: [range.size()] model_dtype
  // in any memory tier, as work on `stream` leaves them. Ranges come in ascending order. Throws
  // IoError.
  virtual void take_updated(int group, Range range, const ConstView& values, StreamRef stream) = 0;
  // An update begins. From now on a group is gathered, or used by a forward pass, only after
  // publish() was called for it. After the last group comes settle_updates(), which waits for the
  // disk. Throws IoError. `skipped`: no value changes, and settle_updates() is not called.
  virtual void expect_updates(bool skipped) { static_cast<void>(skipped); }
  // Brings the group's new weights to every rank that keeps them whole. The group's update was
  // issued to the compute stream, or ends with the events `updated`. Work on the compute stream may
  // use the group after it has waited for `updated` and for the returned event. The order of these
  // calls is the same on all ranks. Collective.
  virtual Event publish(int group, const std::vector<Event>& updated) = 0;
  virtual void settle_updates() {}

  // --- Access for files and users: collective if the values are sharded, waits for the compute
  // stream
  //
  // The values that the optimizer works on (master weights, if there are any): flat [numel] f32
  // (f64 models: f64), on the context's device.
  virtual void read_master(ParameterIndex parameter, View out) = 0;
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
  virtual void load(const std::vector<ReadValues>& planes, const HasValues& has);

  // Gives the model's own values, whole, with the memory they lie in. Empty if they are sharded.
  // The store cannot be used afterwards.
  virtual std::vector<std::pair<autograd::Parameter*, Tensor>> hand_over() { return {}; }

  // Traffic of the model's own weights in swap space.
  virtual SwapTraffic swap_traffic() const { return {}; }

 protected:
  // `own_master`: see OptimizerShards.
  WeightStore(const std::vector<ShardGroup>& groups, comm::Communicator& communicator,
              Context& context, const WeightStoreOptions& options, bool own_master);

  // The values that the optimizer works on; of a frozen slice the model's values.
  virtual View master_view(const Slice& slice) = 0;
  // The ranges of a parameter that this rank keeps in the model's dtype.
  virtual std::vector<Range> kept_ranges(const ShardGroup& group,
                                         const Placement& placement) const = 0;
  // Writes the values of a kept range to the model's own weights. A quantized segment takes encoded
  // bytes.
  virtual void store_model(const ShardGroup& group, const Segment& segment, Range range,
                           const ConstView& values) = 0;
  // Releases all gathered groups.
  virtual void come_to_rest() {}

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

  const ShardGroup& group_of(const Slice& slice) const {
    return groups_[static_cast<size_t>(slice.group)];
  }
  const ShardGroup& group_of(ParameterIndex parameter) const {
    return groups_[static_cast<size_t>(parameter.group)];
  }
  const Placement& at(ParameterIndex parameter) const {
    return group_of(parameter).placements()[static_cast<size_t>(parameter.position)];
  }
  OwnedValues masters();
  OwnedValues values_of(int plane);

  const std::vector<ShardGroup>& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  const WeightStoreOptions options_;
  OptimizerShards optimizer_;
  std::vector<UpdateSlice> slices_;  // the derived class fills them

 private:
  void store(const ShardGroup& group, const Placement& placement, Range range,
             const ConstView& values);
  void load(const ShardGroup& group, const Placement& placement, Range range,
            const std::vector<ReadValues>& planes, const HasValues& has);
  // Loads the kept ranges of a parameter in a quantized segment.
  void load_encoded(const ShardGroup& group, const Placement& placement, const ReadValues& read);

  struct Use {
    Block values;  // [numel] in the group's dtype
    int count = 0;
  };
  std::map<std::pair<int, int>, Use> uses_;  // by group, position: quantized parameters in use
  Block decoded_;
};

// Model weights whole on every rank (stages 0 to 2). Values are undefined before load().
std::unique_ptr<WeightStore> make_whole_weights(const std::vector<ShardGroup>& groups,
                                                comm::Communicator& communicator, Context& context,
                                                const WeightStoreOptions& options);

// Every rank keeps its shards, and the persistent segments whole. A group is gathered for its use
// (stage 3). Values are undefined before load().
std::unique_ptr<WeightStore> make_sharded_weights(const std::vector<ShardGroup>& groups,
                                                  comm::Communicator& communicator,
                                                  Context& context,
                                                  const WeightStoreOptions& options);

}  // namespace zinc::zero
