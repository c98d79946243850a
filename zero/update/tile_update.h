// zero/update/tile_update.h: updates tiles of weights, where their states and gradients are, and
// sends the new weights to the model's copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/context.h"
#include "core/view.h"
#include "optim/optimizer.h"
#include "zero/group/weight_store.h"
#include "zero/update/update_rules.h"
#include "zero/update/whole_phase.h"

namespace zinc::zero {

// Brings updated weights to the model's copy. 16-bit weights pass through two buffers where they
// are computed, as do weights that are not the master weights. A buffer is filled again only after
// its values have arrived.
class UpdatedWeights {
 public:
  // For updates that take at most `tile_numel` elements at a time of `slices` and leave their
  // result in `tier`. `apart`: the result is not the master weights. `weights` and `context` must
  // outlive this.
  UpdatedWeights(WeightStore& weights, const std::vector<UpdatedRange>& slices, Context& context,
                 Tier tier, int64_t tile_numel, bool apart = false);

  // The stream of the update: the compute stream for the tier device, host_stream() otherwise.
  StreamRef stream() const { return stream_; }
  Tier tier() const { return tier_; }  // where it computes
  // The next buffer, [numel] of the model's dtype, for work on stream().
  View buffer(const UpdatedRange& slice, int64_t numel);
  // Sends `values` of `range`, as work on stream() leaves them, to the model's copy. After the
  // returned event `values` may change. Throws IoError.
  Event send(const ConstView& values, const UpdatedRange& slice, Range range);
  // Once all these events have happened, all values sent so far have arrived.
  std::vector<Event> sent() const;
  // The compute stream waits for all values that were computed and sent.
  void finish();

 private:
  WeightStore& weights_;
  Context& context_;
  Tier tier_;
  StreamRef stream_;
  std::array<Block, 2> blocks_;
  std::array<Event, 2> sent_;   // by buffer
  std::array<Event, 3> lanes_;  // behind the last send to the device, to the host, to swap space
  size_t next_ = 0;
};

// One processor's updates. Called from the issuing thread only.
class TileUpdate {
 public:
  virtual ~TileUpdate() = default;
  TileUpdate(const TileUpdate&) = delete;
  TileUpdate& operator=(const TileUpdate&) = delete;

  // A step's updates begin. `args` must not change, nor what it refers to, until they are done.
  virtual void begin(const StepArguments& args) { args_ = &args; }
  // Updates `tile` of a slice. `update`: the weights, states and gradient, where this processor
  // computes. Returns the event after which these weights may change.
  virtual Event compute(const UpdatedRange& slice, Range tile, optim::Update update) = 0;

  UpdatedWeights& updated() { return updated_; }
  StreamRef stream() const { return updated_.stream(); }

 protected:
  // `whole`: of slices that are updated as whole parameters; null: there are none.
  TileUpdate(Context& context, UpdatedWeights updated, const WholePhase* whole)
      : context_(context), updated_(std::move(updated)), whole_(whole) {}
  Context& context() const { return context_; }
  const StepArguments& args() const { return *args_; }
  // Calls `rule` for each part of the tile, cut where hyper-parameters change.
  using Rule = std::function<void(const optim::Update& part, const UpdateRules::RuledRange& range)>;
  void issue(const UpdatedRange& slice, Range tile, const optim::Update& update, const Rule& rule);
  // Issues the rule that changes the slice's weights: the optimizer's, or its whole rule.
  void issue(const UpdatedRange& slice, Range tile, const optim::Update& update);

 private:
  Context& context_;
  UpdatedWeights updated_;
  const WholePhase* const whole_;
  const StepArguments* args_ = nullptr;
};

// On the device. Weights whose model copy is on the device too are updated in place.
class DeviceTileUpdate final : public TileUpdate {
 public:
  // As UpdatedWeights, and TileUpdate.
  DeviceTileUpdate(WeightStore& weights, const std::vector<UpdatedRange>& slices, Context& context,
                   int64_t tile_numel, const WholePhase* whole);
  Event compute(const UpdatedRange& slice, Range tile, optim::Update update) override;
};

// The factor of an update, in memory that one processor reads.
class FactorCopy {
 public:
  // `tier`: where that processor computes.
  FactorCopy(Context& context, Tier tier);
  // Brings the factor there, for work on `stream`.
  void take(const ConstView& factor, StreamRef stream);
  const ConstView& get() const { return factor_; }

 private:
  Context& context_;
  Block block_;  // [1] f32 in pinned memory, for the CPU of a GPU only
  ConstView factor_;
};

// On the CPU, in host memory.
class HostTileUpdate final : public TileUpdate {
 public:
  HostTileUpdate(WeightStore& weights, const std::vector<UpdatedRange>& slices, Context& context,
                 int64_t tile_numel, const WholePhase* whole);
  void begin(const StepArguments& args) override;
  Event compute(const UpdatedRange& slice, Range tile, optim::Update update) override;

 private:
  FactorCopy factor_;
};

// The directions of whole parameters, on either processor: Note [Whole parameters]. Changes states
// and no weights.
class DirectionTiles final : public TileUpdate {
 public:
  // `tier`: where the states are when they are updated. `directions` must outlive this.
  DirectionTiles(WeightStore& weights, Context& context, Tier tier, const WholePhase& directions);
  void begin(const StepArguments& args) override;
  Event compute(const UpdatedRange& slice, Range tile, optim::Update update) override;

 private:
  const WholePhase& directions_;
  FactorCopy factor_;
};

// The weights that the model is used with, where they are not those that it is trained with:
// Note [Weights apart] in weight_update.h. Writes the model's copy, and changes neither weights nor
// states.
class ModelTiles final : public TileUpdate {
 public:
  // As UpdatedWeights. `tier`: where the weights and states are when they are read.
  ModelTiles(WeightStore& weights, const std::vector<UpdatedRange>& slices, Context& context,
             Tier tier, int64_t tile_numel);
  // Whether the tiles to come get Optimizer::evaluated(), or the master weights.
  void set_evaluated(bool evaluated) { evaluated_ = evaluated; }
  Event compute(const UpdatedRange& slice, Range tile, optim::Update update) override;

 private:
  const Tier tier_;
  bool evaluated_ = false;
};

}  // namespace zinc::zero
