// zero/update/weight_update.h: the update of the weights, from its begin to the new weights of the
// last group on all ranks. The step program decides when a group is updated, published and joined.
//
//   within the step      begin(), update(), publish() and join() of all groups, end_step()
//   during backward      begin() and update() in backward, the rest in the step
//   beside the forward   begin() in the step, the rest behind it: finish() at the latest when the
//   pass that follows    next update begins
//
// Note [Updates during backward]
// If nothing can stop a step or change its factor (no clipping, no overflow check), the update of a
// group begins while backward goes on with earlier groups.
//
// Note [Updates beside the next forward pass]
// If the norm or the overflow check of all gradients decides over a step, its update runs beside
// the forward pass that follows. Groups are updated in the order in which that pass uses them.
//
// Note [Weights apart]
// A rule may train with other weights than those that the model is used with
// (optim::Optimizer::evaluates_apart()). The model's copy, which is then a copy on every tier, has
// the former in training passes and the latter in all others. write_model() changes from one to the
// other in a round of tiles of its own, from master weights and states, which do not change. So the
// bits of training do not depend on what is done between its passes.
//
// What an update does with a group's slices, tier by tier: Note [Tiles of an update] in
// tile_drivers.h. Groups with whole parameters are updated within the step: direct() of the groups
// of a window, transform(), then update(): Note [Whole parameters] in whole_phase.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "optim/optimizer.h"
#include "zero/group/gathered_weights.h"
#include "zero/group/gradient_store.h"
#include "zero/group/weight_store.h"
#include "zero/update/swapped_tiles.h"
#include "zero/update/tile_drivers.h"
#include "zero/update/tile_update.h"
#include "zero/update/whole_phase.h"

namespace zinc::zero {

struct WeightUpdateOptions {
  std::vector<int> order;      // all groups, in the order in which a forward pass first uses them
  int64_t tile_numel = 1;      // elements per tile; rounded up to kNormChunk
  bool on_device = false;      // the device updates states in host memory
  SwappedTilesOptions swap{};  // with states in swap space
  // For an optimizer with a whole rule.
  const optim::WholeRule* whole_rule = nullptr;
  std::vector<std::vector<int>> whole_windows{};  // WholePhaseOptions::windows
  int parts = 1;                                  // WholePhaseOptions::parts
  bool apart = false;  // optim::States::apart: write_model() will be called
};

// All calls come from the issuing thread. If the update fails, every later call throws the same
// error.
class WeightUpdate {
 public:
  // All must outlive this, but for `options`.
  WeightUpdate(WeightStore& weights, GatheredWeights& gathered, GradientStore& gradients,
               const ShardGroups& groups, comm::Communicator& communicator, Context& context,
               const WeightUpdateOptions& options);
  ~WeightUpdate();
  WeightUpdate(const WeightUpdate&) = delete;
  WeightUpdate& operator=(const WeightUpdate&) = delete;

  // An update begins. The objects that `args` refers to must not change until finish(). Ends an
  // update that is still under way, as finish() does.
  //   in_step          the compute stream has waited for all gradients
  //   during_backward  a group's gradients are there once its last reduction was issued, ahead of
  //                    update()
  //   skipped          no value changes, but memory is taken and freed as for an update
  //   issued           update_all() follows
  enum class Kind : uint8_t { in_step, during_backward, skipped, issued };
  void begin(const StepArguments& args, Kind kind);
  // Issues all updates to the compute stream, on which all gradients and states are. For work that
  // is recorded: it may be queued again without this call. Collective for whole parameters.
  void update_all();

  // The following calls do nothing if no update is under way.
  //
  // Issues the directions of the group's whole parameters, or lets advance() do so.
  void direct(int group);
  // The directions of the window that ends with this group become steps. Waits for states and
  // gradients in swap space. Collective.
  void transform(int group);
  // Issues the update of the group, or lets advance() do so once the group's gradients, and states
  // in swap space, are there. Never waits.
  void update(int group);
  // Issues the rest of the updates up to this group in `order`, and sends their new weights to all
  // ranks. Waits for states and gradients in swap space. Collective.
  void publish(int group);
  // Call before work on the group's weights is issued. The compute stream waits for the weights.
  // Collective, as publish(), for groups that are not published yet.
  void join(int group);
  // Call as often as possible: issues the updates that can be issued without waiting.
  void advance();
  // The step has ended. If all groups were joined, so has the update. Frees the gradients that the
  // update does not need any more.
  void end_step();
  // Waits until all updated values of this rank are in their place, and frees its gradients. Not
  // collective: other ranks may still wait for this rank's weights.
  void finish_own();
  // Publishes and joins the remaining groups, then finish_own(). Collective.
  void finish();
  // Note [Weights apart]: the model's copy gets the weights for its use, or for training. Nothing
  // is gathered. Ends an update that is under way. Collective.
  void write_model(const StepArguments& args, bool evaluated);
  // Waits for the gradients that an update reads ahead, so that other code can read gradients.
  // Throws IoError.
  void settle_gradients();
  bool is_pending() const { return args_.has_value(); }
  // Null: no parameter is updated as a whole.
  const WholePhase* whole_phase() const { return whole_.get(); }

 private:
  // A round of tiles over the slices: the slices as the round sees them, and its drivers.
  struct Round {
    std::vector<UpdatedRange> slices;
    std::vector<std::unique_ptr<TileUpdate>> processors;
    std::vector<std::unique_ptr<TileDriver>> drivers;
  };

  template <class Work>
  void guarded(const Work& work);
  void make_update();
  void make_directions();
  void make_model();
  // The drivers of a round: where a slice is updated follows from its tier. `on_device`, `on_host`:
  // the processors; may be null if no slice is for them.
  void make_drivers(Round& round, TileInputs& inputs, TileUpdate* on_device, TileUpdate* on_host,
                    const SwappedTilesOptions& swap);
  int64_t tile_numel() const;  // a multiple of kNormChunk
  // Ends the window that is open, whose updates have begun.
  void close_window();
  // Issues the rest of the updates of the first `end` groups in `order`, and publishes them.
  void publish_until(size_t end);
  void begin_tiles(bool during_backward);
  void end_tiles();
  void end_where_done();

  const WeightUpdateOptions options_;
  WeightStore& weights_;
  GatheredWeights& gathered_;
  GradientStore& gradients_;
  const ShardGroups& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  ByGroup<size_t> places_;                 // by group: index in `order`
  std::unique_ptr<WholePhase> whole_;      // null: no parameter is updated as a whole
  std::unique_ptr<TileInputs> inputs_;     // of update_
  Round direct_;                           // makes directions; empty without whole parameters
  Round update_;                           // changes weights
  std::unique_ptr<TileInputs> no_inputs_;  // of model_
  Round model_;  // writes the model's copy alone; empty without WeightUpdateOptions::apart

  // State of the update under way.
  std::optional<StepArguments> args_;
  bool is_under_way_ = false;  // its tiles are under way; false with Kind::issued and skipped
  bool is_skipped_ = false;    // Kind::skipped
  size_t next_publish_;        // index in `order`: those before were published
  size_t next_join_;           // index in `order`: those before were joined
  std::vector<std::vector<Event>> published_;  // by index in `order`; empty once joined
  std::exception_ptr failure_;
};

}  // namespace zinc::zero
