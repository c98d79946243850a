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
// Note [Tiles of an update]
// The update of an element depends on that element alone. So slices are cut into tiles, and tiles
// travel between tiers, without changing a bit.
//
//   master weights, states   updated by   a tile
//   on the device            the device   is a whole slice, but where the model's copy is elsewhere
//   in host memory           the CPU      is updated in place, on a GPU beside the device's work
//   in host memory           the device   travels to one of two buffers there, and back
//   in swap space            the CPU      is read to host memory, and written: swapped_tiles.h
//
// A slice that stays on the device beside others that do not (Note [Split states]) is updated at
// once, within the step. New weights travel from where they were computed to the model's copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "core/context.h"
#include "core/view.h"
#include "optim/optimizer.h"
#include "zero/group/gradient_store.h"
#include "zero/group/weight_store.h"
#include "zero/update/swapped_tiles.h"
#include "zero/update/update_rules.h"

namespace zinc::zero {

struct StepArguments {
  const optim::Optimizer& optimizer;
  const UpdateRules& rules;
  ConstView factor;  // [1] f32: optim::Update
  ConstView skip{};  // [1] i32 or absent: optim::Update; only if all states are on the device
  int64_t step = 1;  // optim::Update
};

// Brings updated weights to the model's copy. 16-bit weights pass through two buffers where they
// are computed. A buffer is filled again only after its values have arrived.
class UpdatedWeights {
 public:
  // For updates that take at most `tile_numel` elements at a time of `slices` and leave their
  // result in `tier`. `weights` and `context` must outlive this.
  UpdatedWeights(WeightStore& weights, const std::vector<UpdatedRange>& slices, Context& context,
                 Tier tier, int64_t tile_numel);

  // The stream of the update: the compute stream for the tier device, host_stream() otherwise.
  StreamRef stream() const { return stream_; }
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

struct WeightUpdateOptions {
  std::vector<int> order;      // all groups, in the order in which a forward pass first uses them
  optim::States states{};      // states of the optimizer
  int64_t tile_numel = 1;      // elements per tile; rounded up to kNormChunk
  bool on_device = false;      // the device updates states in host memory
  SwappedTilesOptions swap{};  // with states in swap space
};

// All calls come from the issuing thread. If the update fails, every later call throws the same
// error.
class WeightUpdate {
 public:
  // `weights`, `gradients` and `context` must outlive this.
  WeightUpdate(WeightStore& weights, GradientStore& gradients, Context& context,
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
  // is recorded: it may be queued again without this call.
  void update_all();

  // The following calls do nothing if no update is under way.
  //
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
  // Waits for the gradients that an update reads ahead, so that other code can read gradients.
  // Throws IoError.
  void settle_gradients();
  bool is_pending() const { return args_.has_value(); }

 private:
  // Room on the device for a tile of states from host memory.
  struct Room {
    Block memory;
    Event left;  // behind the copy of the updated tile back to host memory
  };

  template <class Work>
  void guarded(const Work& work);
  // Issues the rest of the updates of the first `end` groups in `order`, and publishes them.
  void publish_until(size_t end);
  void end_where_done();

  bool on_host() const { return host_.has_value(); }  // the CPU updates what is off the device
  void make_rooms();
  void begin_tiles(bool during_backward);
  void take_factor();
  void issue_ready();
  std::vector<Event> finish_group(int group);
  void end_tiles();
  // The slices on the device, beside others that are not.
  void update_device_part();
  void update_group(int group);     // the group's slices that are not on the device
  void update_slice(size_t index);  // unless it is updated already
  void update_tile(const UpdatedRange& slice, Range tile);
  void update_in_room(const UpdatedRange& slice, Range tile, const optim::Update& in_host);
  // Updates a tile where its weights, states and gradient are. Returns the event after which its
  // weights may change.
  Event compute(const UpdatedRange& slice, Range tile, optim::Update update);

  const WeightUpdateOptions options_;
  WeightStore& weights_;
  GradientStore& gradients_;
  Context& context_;
  const std::vector<UpdatedRange>& slices_;
  ByGroup<size_t> places_;  // by group: index in `order`
  const Tier tier_;         // tier of the slices off the device; the device, if there are none
  const int64_t tile_numel_;
  UpdatedWeights device_;
  std::optional<UpdatedWeights> host_;  // absent: the CPU updates nothing
  bool never_waits_ = true;             // true: the issuing thread never waits for an update
  std::array<Room, 2> rooms_;
  size_t next_room_ = 0;
  Block host_factor_block_;  // [1] f32 in pinned memory, on a GPU only
  std::unique_ptr<SwappedTiles> swapped_;

  // State of the update under way.
  std::optional<StepArguments> args_;
  ConstView host_factor_;
  bool is_under_way_ = false;  // its tiles are under way; false with Kind::issued and skipped
  bool is_device_part_left_ = false;
  std::vector<bool> is_updated_;               // by slice
  std::deque<int> ready_;                      // groups
  size_t next_publish_;                        // index in `order`: those before were published
  size_t next_join_;                           // index in `order`: those before were joined
  std::vector<std::vector<Event>> published_;  // by index in `order`; empty once joined
  std::exception_ptr failure_;
};

}  // namespace zinc::zero
