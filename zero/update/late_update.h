// zero/update/late_update.h: an update that goes on beside the forward pass after its step.
//
// See Note [Updates beside the next forward pass]. Its collectives are ops of the step program, in
// the recorded order of first uses (zero/passes/publish_updates.cpp), so that ranks agree on them
// however far each has come.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "zero/group/gradient_store.h"
#include "zero/group/weight_store.h"
#include "zero/update/optimizer_step.h"

namespace zinc::zero {

// Calls come from the issuing thread. What an update throws is thrown again by every later call.
class LateUpdate {
 public:
  // `order`: all groups, as a forward pass uses them first. The rest must outlive this.
  LateUpdate(std::vector<int> order, WeightStore& weights, GradientStore& gradients,
             OptimizerStep& step, StreamRef compute);

  // In the place of OptimizerStep::run(), WeightStore::publish() and GradientStore::discard(). What
  // `args` refers to stays as it is until finish(). `skipped`: no value changes, but memory is
  // taken and given back as by an update.
  void begin(const StepArguments& args, bool skipped);
  // Issues what is left of the group's update, and of those before it; new weights go to all ranks.
  // Nothing where no update is under way. Collective.
  void publish(int group);
  // Before work on the group's weights is issued: the compute stream waits for them.
  void join(int group);
  // Issues what can be issued without waiting.
  void advance();
  // All values of this rank have arrived where they belong, and its gradients are given back;
  // waits. Not collective: other ranks may wait for weights of it still.
  void finish_own();
  // Publishes and joins what is left, and finish_own().
  void finish();
  bool is_pending() const { return args_.has_value(); }

 private:
  template <class Work>
  void guarded(const Work& work);
  // Issues what is left of the first `end` groups, and publishes them.
  void publish_until(size_t end);
  void end_where_done();

  const std::vector<int> order_;
  std::vector<size_t> places_;  // of groups, in order_
  WeightStore& weights_;
  GradientStore& gradients_;
  OptimizerStep& step_;
  StreamRef compute_;
  std::optional<StepArguments> args_;          // while an update is under way
  size_t next_publish_ = 0;                    // in order_: groups before it were published
  size_t next_join_ = 0;                       // likewise: were joined
  std::vector<std::vector<Event>> published_;  // by place in order_: until it is joined
  bool arrived_ = true;                        // all values of this rank
  bool skipped_ = false;                       // the update under way changes nothing
  std::exception_ptr failure_;
};

}  // namespace zinc::zero
