// zero/weight_store.h: where model weights, master weights and optimizer states live.
//
// One implementation per way of sharding, chosen once when the engine is made.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "comm/communicator.h"
#include "core/context.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "zero/shard_group.h"
#include "zero/step_schedule.h"

namespace zinc::zero {

// One contiguous range of trained elements that this rank updates, all of one segment.
struct UpdateSlice {
  int group = 0;
  SegmentKind segment = SegmentKind::decay;
  Range range;   // of the group's arena
  View weights;  // [range] f32 (f64 models: f64): the values that the optimizer updates
  std::array<View, optim::kMaxOptimizerStates> states;  // [range] dtype of weights
  View model_weights;  // [range] 16-bit copy for the model; absent where `weights` serves it
};

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  // --- the model's side, called through the parameter source
  // The whole parameter, in place for the compute stream until unpin.
  virtual ConstView pin(ParameterIndex parameter) = 0;
  virtual void unpin(ParameterIndex parameter) noexcept = 0;
  virtual int64_t num_pinned() const = 0;

  // --- the optimizer's side
  virtual std::vector<UpdateSlice> slices() = 0;
  // After the update of all slices was issued: weights reach every rank that computes with them.
  virtual void publish() = 0;

  // --- access for files and users; collective where parameters are sharded
  // The values the optimizer works on (master weights where there are any), f32 or f64, flat
  // [numel] in host memory.
  virtual void read_master(ParameterIndex parameter, View out) = 0;
  virtual void read_state(ParameterIndex parameter, int state, View out) = 0;
  virtual void write_master(ParameterIndex parameter, ConstView values) = 0;
};

struct WeightStoreOptions {
  int num_states = 2;                  // of the optimizer, per trained element
  int64_t bucket_numel = 500'000'000;  // elements per collective
};

// Everything whole on every rank (ZeRO stage 0). Values come from `source`, converted once to f32
// (f64 for f64 models) and from there to the model's dtype, so that every way of sharding starts
// alike.
std::unique_ptr<WeightStore> make_replicated_weights(const std::vector<ShardGroup>& groups,
                                                     Context& context,
                                                     const nn::WeightSource& source,
                                                     const WeightStoreOptions& options);

}  // namespace zinc::zero
