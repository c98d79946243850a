// zero/run/forward_passes.h: passes without a backward pass, and an engine's current activity.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "comm/world.h"
#include "core/error.h"
#include "nn/model.h"
#include "parallel/pipeline_cut.h"
#include "tensor/tensor.h"
#include "zero/group/gathered_weights.h"
#include "zero/run/runner.h"

namespace zinc::zero {

// What an engine is doing, for messages.
enum class Activity : uint8_t {
  construction,
  forward,
  backward,
  recorded_passes,
  evaluation,
  prediction,
  generation,
  step,
  reading_weights,
  writing_weights,
  importing_state,
  reducing_gradients,
};
std::string_view name_of(Activity activity);  // "forward", "reading of weights"

class ForwardPasses {
 public:
  // All must outlive this.
  struct Parts {
    nn::Model& model;
    comm::World& world;          // all ranks
    parallel::PipelineCut* cut;  // null: this rank has all of the model
    GatheredWeights& weights;
    Runner& runner;
  };
  explicit ForwardPasses(const Parts& parts) : parts_(parts) {}

  // Runs `compute` as a pass without a backward pass: without dropout and gradients.
  void evaluate(Activity activity, Runner::Follows follows, const std::function<void()>& compute);
  // The loss of this rank's part of a batch; in a pipeline, undefined except on the last rank. It
  // is a pass of its own, by evaluate().
  Tensor loss_of(const nn::Batch& batch);

  // Sets the engine's current activity, for messages. `micro_batch`: from 1; 0: none.
  void enter(Activity activity, int64_t micro_batch = 0) {
    activity_ = activity;
    entered_ = micro_batch;
  }
  Activity activity() const { return activity_; }
  // The activity and its place in the model: "evaluation, at transformer.wte.weight".
  std::string moment() const;
  // Runs `compute`; an error of the model gets the pass and the last parameter added to its
  // message.
  template <class Compute>
  auto named(const Compute& compute) const -> decltype(compute()) {
    try {
      return compute();
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(str(error.what(), place()));
    }
  }

 private:
  std::string place() const;  // " (forward of micro-batch 1, after wte.weight was used)"
  Tensor loss_of_pipeline(const nn::Batch& batch);

  const Parts parts_;
  Activity activity_ = Activity::construction;
  int64_t entered_ = 0;  // micro-batch of the activity, from 1; 0: of no micro-batch
};

}  // namespace zinc::zero
