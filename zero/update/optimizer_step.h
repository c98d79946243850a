// zero/update/optimizer_step.h: the update of a rank's slices, wherever weights and states live.
//
// Every element's update depends on that element alone, so slices are cut into tiles and tiles
// travel between tiers without changing a bit.
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
  ConstView skip{};  // [1] i32, may be absent: optim::Update; resident states alone take one
  int64_t step = 1;  // optim::Update
};

class OptimizerStep {
 public:
  virtual ~OptimizerStep() = default;
  // Issues the update of all slices; work issued to the compute stream afterwards sees new weights.
  virtual void run(const StepArguments& args) = 0;

  // Note [Updates during backward]
  // Where nothing can stop a step or change its factor (no clipping, no overflow check), the update
  // of a group begins while backward goes on below it: begin() before the last backward pass,
  // ready() for each group when the last reduction of its sums was issued, advance() as often as
  // there is a moment, run() with the same arguments for the rest. advance() issues the updates for
  // which everything is there; it waits for nothing.
  virtual void begin(const StepArguments&) {}
  virtual void ready(int group) { static_cast<void>(group); }
  virtual void advance() {}

  // Note [Updates beside the next forward pass]
  // Where the norm or the overflow check of all gradients decides over a step, its update goes on
  // beside the forward pass that follows: defer() in the place of run(), advance() as often as
  // there is a moment, finish() before a group's weights are used, run() with the same arguments
  // for the rest. Groups are updated in the order in which that pass uses them.
  virtual void defer(const StepArguments&) {}
  // Issues what is left up to the end of this group's updates. New weights of the group are where
  // the model's copy lives behind all of these events.
  virtual std::vector<Event> finish(int group) {
    static_cast<void>(group);
    return {};
  }
  // Of an update that has begun: waits for the gradients that it reads ahead, so that they can be
  // read by others. Throws IoError.
  virtual void settle_gradients() {}
};

// `tile_numel` of updates that go tile by tile.
inline int64_t whole_chunks(int64_t tile_numel) {
  return (tile_numel + kNormChunk - 1) / kNormChunk * kNormChunk;
}

// Updates states that are on the device. Where the model's copy is elsewhere its new values leave
// tile by tile, in 16 bits through two buffers of at most `tile_numel` elements.
std::unique_ptr<OptimizerStep> make_resident_step(WeightStore& weights, GradientStore& gradients,
                                                  Context& context, int64_t tile_numel);

// Updates weights and states in host memory, gradients there too, where the CPU computes; updated
// weights travel on a copy stream while the next tile is computed. On a GPU the CPU is at it beside
// the device: an update that has begun or was deferred waits for nothing but gradients. Where the
// model has 16 bits they pass through two buffers of at most `tile_numel` elements, rounded up to
// kNormChunk. `beside` updates the rest, on the device: see Note [Split states].
std::unique_ptr<OptimizerStep> make_host_step(WeightStore& weights, GradientStore& gradients,
                                              Context& context, int64_t tile_numel,
                                              std::unique_ptr<OptimizerStep> beside);

// The same where the device computes: tiles of at most
// `tile_numel` elements, rounded up to kNormChunk, travel there, and weights and states back, on
// the copy streams. Over two buffers on the device for weights, `num_states` states and the
// gradient of a tile.
std::unique_ptr<OptimizerStep> make_streamed_step(WeightStore& weights, GradientStore& gradients,
                                                  Context& context, int num_states,
                                                  int64_t tile_numel,
                                                  std::unique_ptr<OptimizerStep> beside);

// All trained groups, and perhaps others.
struct UpdateOrders {
  std::vector<int> by_gradient;  // as their gradients are complete
  std::vector<int> by_use;       // as a forward pass uses them
};

struct SwapPipeline {
  bool read_ahead = false;    // reads the next tile while one is updated
  bool write_behind = false;  // writes a tile while the next is read and updated
};

// Weights and states in swap space, gradients in host memory or, with `swapped_gradients`, in tiles
// of the same ranges in swap space too, where the CPU computes tile by tile. run() waits for the
// disk and throws IoError; weights and states are then not to be used any more.
std::unique_ptr<OptimizerStep> make_swapped_step(WeightStore& weights, GradientStore& gradients,
                                                 SwappedShards& states,
                                                 SwappedGradients* swapped_gradients,
                                                 Context& context, const UpdateOrders& orders,
                                                 const SwapPipeline& pipeline);

}  // namespace zinc::zero
