// zero/group/weight_values.h: reads and writes weights and states where a rank keeps them, for
// files and users. Collective where the values are sharded. Waits for the compute stream.
//
// Called from the issuing thread only, between passes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/weight_encoding.h"
#include "core/context.h"
#include "core/view.h"
#include "zero/group/gathered_weights.h"
#include "zero/group/weight_store.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// The largest number of elements that pass through staging memory at once, to and from files.
inline constexpr int64_t kPieceNumel = int64_t{1} << 20;

using autograd::ReadValues;
using HasValues = std::function<bool(const autograd::Parameter& parameter, int plane)>;

class WeightValues {
 public:
  // All must outlive this. Writes free what is gathered.
  WeightValues(WeightStore& store, GatheredWeights& gathered, const ShardGroups& groups,
               Context& context);
  WeightValues(const WeightValues&) = delete;
  WeightValues& operator=(const WeightValues&) = delete;

  // The values that the optimizer works on (master weights, if there are any): flat [numel] f32
  // (f64 models: f64), on the context's device.
  void read_master(ParameterIndex parameter, View out);
  void read_state(ParameterIndex parameter, int plane, View out);
  // The values of read_master() or read_state() for `range` of the group's arena: flat
  // [range.size()]. `range` is part of the parameter, in this rank's shard of its segment. Every
  // rank has its shard on every stage. Not collective.
  void read_own(ParameterIndex parameter, int plane, Range range, View out);
  // How a plane of the parameter is kept: for own_in_place().
  Encoding encoding(ParameterIndex parameter, int plane) const {
    return store_.optimizer().encoding(groups_.of(parameter), plane);
  }
  // The same values in place, without a copy, as they are kept: [Encoding::numel_of(range.size())].
  // Absent if the host cannot read their memory. The caller must have waited for the work on the
  // compute stream.
  ConstView own_in_place(ParameterIndex parameter, int plane, Range range);
  // Reads values that are spread over the ranks as WeightStore::slices() are, such as gradients.
  void read_owned(ParameterIndex parameter, const OwnedValues& values, View out);
  void write_master(ParameterIndex parameter, ConstView values);
  // Loads values of all parameters, by plane: weights, then as many states as are given. A value is
  // converted once to f32 (f64 models: f64) and from there to the model's dtype, so every way of
  // sharding starts alike. `has`: false leaves a value as it is; an empty function means true. Each
  // rank reads what it keeps. Not collective.
  void load(const std::vector<ReadValues>& planes, const HasValues& has);

 private:
  // The values that the optimizer works on; of a frozen slice the model's values.
  View master_view(const OwnedRange& slice);
  OwnedValues masters();
  OwnedValues values_of(const ShardGroup& group, int plane);
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

  WeightStore& store_;
  GatheredWeights& gathered_;
  const ShardGroups& groups_;
  Context& context_;
  Block decoded_;
};

}  // namespace zinc::zero
