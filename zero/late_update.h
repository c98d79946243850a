// zero/late_update.h: an update that goes on beside the forward pass after its step.
//
// See Note [Updates beside the next forward pass]. Collectives of it are issued in the recorded
// order of first uses, whenever that is, so that ranks agree on them however far each has come: a
// rank that needs a group brings all groups before it to the others too.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "tensor/tensor.h"
#include "zero/gradient_store.h"
#include "zero/optimizer_step.h"
#include "zero/weight_store.h"

namespace zinc::zero {

// Calls come from the issuing thread. What an update throws is thrown again by every later call.
class LateUpdate {
 public:
  // `order`: all groups, as a forward pass uses them first. The rest must outlive this.
  LateUpdate(std::vector<int> order, WeightStore& weights, GradientStore& gradients,
             OptimizerStep& step);

  // In the place of OptimizerStep::run(), WeightStore::publish() and GradientStore::discard(). What
  // `args` refers to stays as it is until the end; `factor` is the tensor behind it.
  void begin(const StepArguments& args, Tensor factor);
  // Before work on the group's weights is issued, or their gather. Collective.
  void use(int group);
  void use_all();
  // All values of this rank have arrived where they belong; waits. Not collective: other ranks may
  // wait for weights of it still.
  void finish_own();
  // use_all() and finish_own().
  void finish();

 private:
  template <class Work>
  void guarded(const Work& work);
  void end_where_done();

  const std::vector<int> order_;
  std::vector<size_t> places_;  // of groups, in order_
  WeightStore& weights_;
  GradientStore& gradients_;
  OptimizerStep& step_;
  std::optional<StepArguments> args_;  // while an update is under way
  Tensor factor_;
  size_t next_use_ = 0;  // in order_: groups before it were used, and published
  bool arrived_ = true;  // all values of this rank
  std::exception_ptr failure_;
};

}  // namespace zinc::zero
