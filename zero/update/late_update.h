// zero/update/late_update.h: an update that runs beside the forward pass after its step.
//
// See Note [Updates beside the next forward pass]. The collectives of such an update are ops of the
// step program, in the recorded order of first uses (zero/passes/publish_updates.cpp). So all ranks
// agree on their order, however far each rank has come.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "zero/group/gradient_store.h"
#include "zero/group/weight_store.h"
#include "zero/update/optimizer_step.h"

namespace zinc::zero {

// All calls come from the issuing thread. If the update fails, every later call throws the same
// error.
class LateUpdate {
 public:
  // `order`: all groups, in the order in which a forward pass first uses them. The other arguments
  // must outlive this.
  LateUpdate(std::vector<int> order, WeightStore& weights, GradientStore& gradients,
             OptimizerStep& step, StreamRef compute);

  // Takes the place of OptimizerStep::run(), WeightStore::publish() and GradientStore::discard().
  // The objects that `args` refers to must not change until finish(). `skipped`: no value changes,
  // but memory is taken and freed as for an update. Ends an update that is still under way, as
  // finish() does.
  void begin(const StepArguments& args, bool skipped);
  // Issues the rest of the updates up to this group in `order`, and sends their new weights to all
  // ranks. Does nothing if no update is under way. Collective.
  void publish(int group);
  // Call before work on the group's weights is issued. The compute stream waits for the weights.
  // Collective, as publish(), for groups that are not published yet.
  void join(int group);
  // Issues the updates that can be issued without waiting.
  void advance();
  // Waits until all updated values of this rank are in their place, and frees its gradients. Not
  // collective: other ranks may still wait for this rank's weights.
  void finish_own();
  // Publishes and joins the remaining groups, then finish_own(). Collective.
  void finish();
  bool is_pending() const { return args_.has_value(); }

 private:
  template <class Work>
  void guarded(const Work& work);
  // Issues the rest of the updates of the first `end` groups in order_, and publishes them.
  void publish_until(size_t end);
  void end_where_done();

  const std::vector<int> order_;
  std::vector<size_t> places_;  // by group: its index in order_
  WeightStore& weights_;
  GradientStore& gradients_;
  OptimizerStep& step_;
  StreamRef compute_;
  std::optional<StepArguments> args_;          // while an update is under way
  size_t next_publish_ = 0;                    // index in order_: those before were published
  size_t next_join_ = 0;                       // index in order_: those before were joined
  std::vector<std::vector<Event>> published_;  // by index in order_; empty once joined
  bool arrived_ = true;                        // all values of this rank are in their place
  bool skipped_ = false;                       // the update under way changes no value
  std::exception_ptr failure_;
};

}  // namespace zinc::zero
