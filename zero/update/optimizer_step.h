// zero/update/optimizer_step.h: updates this rank's slices, on whatever tier weights and states
// live.
//
// The update of an element depends on that element alone. So slices are cut into tiles, and tiles
// travel between tiers, without changing a bit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/context.h"
#include "optim/optimizer.h"
#include "zero/group/gradient_store.h"
#include "zero/group/weight_store.h"
#include "zero/tiers/swapped_shards.h"
#include "zero/update/update_rules.h"

namespace zinc::zero {

struct StepArguments {
  const optim::Optimizer& optimizer;
  const UpdateRules& rules;
  ConstView factor;  // [1] f32: optim::Update
  ConstView skip{};  // [1] i32 or absent: optim::Update; make_resident_step() only
  int64_t step = 1;  // optim::Update
};

class OptimizerStep {
 public:
  virtual ~OptimizerStep() = default;
  // Issues the update of all slices. Work that is issued to the compute stream afterwards sees the
  // new weights.
  virtual void run(const StepArguments& args) = 0;

  // Note [Updates during backward]
  // If nothing can stop a step or change its factor (no clipping, no overflow check), the update of
  // a group begins while backward goes on with earlier groups.
  //
  //   begin()    before the last backward pass
  //   ready()    for each group, when the last reduction of its sums was issued
  //   advance()  as often as possible: issues the updates whose inputs are there; never waits
  //   run()      with the same arguments: the rest
  virtual void begin(const StepArguments&) {}
  virtual void ready(int group) { static_cast<void>(group); }
  virtual void advance() {}

  // Note [Updates beside the next forward pass]
  // If the norm or the overflow check of all gradients decides over a step, its update runs beside
  // the forward pass that follows. Groups are updated in the order in which that pass uses them.
  //
  //   defer()    in the place of run()
  //   advance()  as often as possible
  //   finish()   before the weights of a group are used
  //   run()      with the same arguments: the rest
  virtual void defer(const StepArguments&) {}
  // Issues the remaining updates up to the end of this group. The group's new weights are in the
  // model's copy once all returned events have happened.
  virtual std::vector<Event> finish(int group) {
    static_cast<void>(group);
    return {};
  }
  // For an update that has begun: waits for the gradients that it reads ahead, so that other code
  // can read gradients. Throws IoError.
  virtual void settle_gradients() {}
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

// Orders of all trained groups. Other groups may be among them.
struct UpdateOrders {
  std::vector<int> by_gradient;  // the order in which gradients are complete
  std::vector<int> by_use;       // the order in which a forward pass uses them
};

struct SwapPipeline {
  bool read_ahead = false;    // the next tile is read while a tile is updated
  bool write_behind = false;  // a tile is written while the next is read and updated
};

// Updates weights and states in swap space by the CPU, tile by tile. Gradients are in host memory,
// or with `swapped_gradients` in swap space, in tiles of the same ranges. run() waits for the disk
// and throws IoError. After an IoError weights and states must not be used.
std::unique_ptr<OptimizerStep> make_swapped_step(WeightStore& weights, GradientStore& gradients,
                                                 SwappedShards& states,
                                                 SwappedGradients* swapped_gradients,
                                                 Context& context, const UpdateOrders& orders,
                                                 const SwapPipeline& pipeline);

}  // namespace zinc::zero
