// zero/update/groupwise_update.h: takes an update through its groups: from its begin to the new
// weights of the last group on all ranks. When a group is updated, published and joined is what the
// step program says.
//
//   within the step      begin(), update(), publish() and join() of all groups, end_step()
//   during backward      begin() and update() in backward, the rest in the step
//   beside the forward   begin() in the step, the rest behind it: finish() at the latest when the
//   pass that follows    next update begins
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
class GroupwiseUpdate {
 public:
  // `order`: all groups, in the order in which a forward pass first uses them. The other arguments
  // must outlive this.
  GroupwiseUpdate(std::vector<int> order, WeightStore& weights, GradientStore& gradients,
                  OptimizerStep& step, StreamRef compute);

  // An update begins. The objects that `args` refers to must not change until finish(). Ends an
  // update that is still under way, as finish() does.
  //   in_step          all gradients are there
  //   during_backward  a group's gradients are there when its update() is called
  //   skipped          no value changes, but memory is taken and freed as for an update
  //   issued           the caller has issued the updates of all groups itself
  enum class Kind : uint8_t { in_step, during_backward, skipped, issued };
  void begin(const StepArguments& args, Kind kind);

  // The following calls do nothing if no update is under way.
  //
  // Lets the group be updated from here on: OptimizerStep::update().
  void update(int group);
  // Issues the rest of the updates up to this group in `order`, and sends their new weights to all
  // ranks. Collective.
  void publish(int group);
  // Call before work on the group's weights is issued. The compute stream waits for the weights.
  // Collective, as publish(), for groups that are not published yet.
  void join(int group);
  // Issues the updates that can be issued without waiting.
  void advance();
  // The step has ended. If all groups were joined, so has the update. Frees the gradients that the
  // update does not need any more.
  void end_step();
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
  bool is_under_way_ = false;                  // step_ has begun, and has not ended
  std::exception_ptr failure_;
};

}  // namespace zinc::zero
