// zero/update/optimizer_step.h: updates this rank's slices, on whatever tier weights and states
// live.
//
// The update of an element depends on that element alone. So slices are cut into tiles, and tiles
// travel between tiers, without changing a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/context.h"
#include "optim/optimizer.h"
#include "zero/group/gradient_store.h"
#include "zero/group/weight_store.h"
#include "zero/tiers/swapped_shards.h"
#include "zero/update/update_rules.h"
#include "zero/update/updated_weights.h"

namespace zinc::zero {

struct StepArguments {
  const optim::Optimizer& optimizer;
  const UpdateRules& rules;
  ConstView factor;  // [1] f32: optim::Update
  ConstView skip{};  // [1] i32 or absent: optim::Update; make_resident_step() only
  int64_t step = 1;  // optim::Update
};

// Note [Updates during backward]
// If nothing can stop a step or change its factor (no clipping, no overflow check), the update of a
// group begins while backward goes on with earlier groups.
//
// Note [Updates beside the next forward pass]
// If the norm or the overflow check of all gradients decides over a step, its update runs beside
// the forward pass that follows. Groups are updated in the order in which that pass uses them.
class OptimizerStep {
 public:
  virtual ~OptimizerStep() = default;
  // An update begins. `during_backward`: a group's gradients are there once its last reduction was
  // issued, ahead of update(). Otherwise the compute stream has waited for those of all groups.
  virtual void begin(const StepArguments& args, bool during_backward) = 0;
  // Issues the update of the group, or lets advance() do so once the group's gradients, and states
  // in swap space, are there. Never waits.
  virtual void update(int group) = 0;
  // Call as often as possible: issues the updates whose inputs are there. Never waits.
  virtual void advance() {}
  // Issues the remaining updates up to the end of this group. The group's new weights are in the
  // model's copy once all returned events have happened, and the work that was issued to the
  // compute stream.
  virtual std::vector<Event> finish(int group) = 0;
  // Issues the rest. Work that is issued to the compute stream afterwards sees the new weights.
  virtual void end() = 0;
  // For an update that has begun: waits for the gradients that it reads ahead, so that other code
  // can read gradients. Throws IoError.
  virtual void settle_gradients() {}
};

// An update of the slices of one tier, each once.
class SlicewiseStep : public OptimizerStep {
 public:
  void begin(const StepArguments& args, bool during_backward) override;
  void update(int group) override;
  std::vector<Event> finish(int group) override;
  void end() override;

 protected:
  // `tier`: where the slices' states are. `computed_in`: the tier of UpdatedWeights.
  SlicewiseStep(WeightStore& weights, GradientStore& gradients, Context& context, Tier tier,
                Tier computed_in, int64_t tile_numel);

  // Issues the update of a slice.
  virtual void update_slice(const UpdateSlice& slice) = 0;
  bool is_under_way() const { return args_.has_value(); }
  const StepArguments& args() const { return *args_; }
  const std::vector<UpdateSlice>& slices() const { return slices_; }

  GradientStore& gradients_;
  Context& context_;
  const int64_t tile_numel_;
  UpdatedWeights updated_;

 private:
  void update_slices(size_t first, size_t last);

  WeightStore& weights_;
  const Tier tier_;
  std::optional<StepArguments> args_;  // while an update is under way
  std::vector<UpdateSlice> slices_;    // of that update, group after group
  std::vector<bool> is_updated_;       // by slice
};

// The number of elements per tile: `tile_numel` rounded up to whole chunks.
inline int64_t whole_chunks(int64_t tile_numel) {
  return (tile_numel + kNormChunk - 1) / kNormChunk * kNormChunk;
}

// Updates states on the device. If the model's copy of the weights is elsewhere, new values leave
// tile by tile; 16-bit values pass through two buffers of at most `tile_numel` elements.
std::unique_ptr<OptimizerStep> make_resident_step(WeightStore& weights, GradientStore& gradients,
                                                  Context& context, int64_t tile_numel);

// Updates weights and states in host memory by the CPU. Gradients are in host memory too. Updated
// weights travel on a copy stream while the next tile is computed; 16-bit weights pass through two
// buffers of at most `tile_numel` elements, rounded up to kNormChunk. On a GPU the CPU works beside
// the device, and an update that has begun or was deferred waits for gradients alone. `beside`
// updates the slices on the device: see Note [Split states].
std::unique_ptr<OptimizerStep> make_host_step(WeightStore& weights, GradientStore& gradients,
                                              Context& context, int64_t tile_numel,
                                              std::unique_ptr<OptimizerStep> beside);

// Updates weights and states in host memory by the device. Tiles of at most `tile_numel` elements,
// rounded up to kNormChunk, travel to the device, and weights and states travel back, on the copy
// streams. Two buffers on the device hold the weights, the states and the gradient of a tile each.
// `beside` as above.
std::unique_ptr<OptimizerStep> make_streamed_step(WeightStore& weights, GradientStore& gradients,
                                                  Context& context, const optim::States& states,
                                                  int64_t tile_numel,
                                                  std::unique_ptr<OptimizerStep> beside);

struct SwapPipeline {
  bool read_ahead = false;    // the next tile is read while a tile is updated
  bool write_behind = false;  // a tile is written while the next is read and updated
};

// Updates weights and states in swap space by the CPU, tile by tile. Gradients are in host memory,
// or with `swapped_gradients` in swap space, in tiles of the same ranges. finish() and end() wait
// for the disk, and all calls throw IoError. After an IoError weights and states must not be used.
// `order`: the trained groups in the order of their updates. Tiles are read in this order.
std::unique_ptr<OptimizerStep> make_swapped_step(WeightStore& weights, GradientStore& gradients,
                                                 SwappedShards& states,
                                                 SwappedGradients* swapped_gradients,
                                                 Context& context, const std::vector<int>& order,
                                                 const SwapPipeline& pipeline);

}  // namespace zinc::zero
