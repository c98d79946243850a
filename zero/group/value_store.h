// zero/group/value_store.h: the part of a weight store that does not depend on how weights are
// sharded: reads values for files and users, and writes values.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "zero/group/optimizer_shards.h"
#include "zero/group/weight_store.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

class ValueStore : public WeightStore {
 public:
  const std::vector<UpdateSlice>& slices() const override { return slices_; }
  void read_state(ParameterIndex parameter, int state, View out) override;
  void read_owned(ParameterIndex parameter, const OwnedValues& values, View out) override;
  void read_own(ParameterIndex parameter, int plane, Range range, View out) override;
  ConstView own_in_place(ParameterIndex parameter, int plane, Range range) override;
  void write_master(ParameterIndex parameter, ConstView values) override;
  void load(const std::vector<ReadValues>& planes, const HasValues& has) override;

 protected:
  // `own_master`: see OptimizerShards.
  ValueStore(const std::vector<ShardGroup>& groups, comm::Communicator& communicator,
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

}  // namespace zinc::zero
