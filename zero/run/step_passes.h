// zero/run/step_passes.h: the passes of a step's micro-batches, in each of the ways in which they
// can pass: one by one, side by side, as a CUDA graph, through the ranks of a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/phase_clock.h"
#include "core/trace_marks.h"
#include "nn/model.h"
#include "parallel/pipeline_cut.h"
#include "parallel/pipeline_passes.h"
#include "parallel/vertical_passes.h"
#include "zero/engine_config.h"
#include "zero/rewrites/step_program.h"
#include "zero/run/forward_passes.h"
#include "zero/run/recorded_passes.h"
#include "zero/run/runner.h"
#include "zero/tiers/input_counter.h"
#include "zero/tiers/saved_inputs.h"
#include "zero/update/stores.h"
#include "zero/update/whole_step.h"

namespace zinc::zero {

class StepPasses {
 public:
  // All must outlive this.
  struct Parts {
    const EngineConfig& config;
    nn::Model& model;
    comm::World& world;          // all ranks
    parallel::PipelineCut* cut;  // null: this rank has all of the model
    const StepProgram& program;
    InputRoom inputs;  // of the inputs of recomputed blocks
    Stores& stores;
    WholeStep& step;
    Runner& runner;
    ForwardPasses& passes;
    RecordedPasses* recorded;  // null: nothing is recorded
    PhaseClock& clock;
  };
  explicit StepPasses(const Parts& parts);

  // See the calls of Engine: forward(), backward(), run_passes(), step(). step() does not run
  // `after_step`.
  BatchLoss forward(const nn::Batch& batch);
  void backward(const BatchLoss& loss);
  void run(std::span<const nn::Batch> batches);
  StepResult step();

  // From here to end_no_sync() backward passes are not counted: Engine::NoSync.
  void begin_no_sync();
  void end_no_sync() noexcept { no_sync_ = false; }
  bool is_between_steps() const { return backwards_ == 0; }
  // True between the last backward pass of a step and the step.
  bool has_all_gradients() const { return !stepped_ && micro_steps_ == config_.batch.accumulation; }

  // ForwardPasses::moment(), and in a step the step's part.
  std::string moment() const;

  offload::SwapTraffic traffic() const { return saved_inputs_.traffic(); }

 private:
  // Checks a batch that goes forward, and returns the key of its random numbers. Ranks that have
  // parts of its tokens get different keys.
  uint64_t take_in(const nn::Batch& batch);
  std::vector<parallel::SideBySide> take_in(std::span<const nn::Batch> batches);
  // Run `work` as a pass of the step program, with the settings of training, and measure its time.
  // `of_weights`: the pass makes the gradients that a backward pass has left for later.
  template <class Work>
  void forward_pass(const MicroBatchKind& kind, const Work& work);
  template <class Work>
  void backward_pass(const MicroBatchKind& kind, const Work& work, bool of_weights = false);
  void require_room(const char* call) const;
  void require_none_done() const;
  StepResult step_now();
  // Backward passes of this step, as far as is known.
  int64_t num_backwards() const { return backwards_ + config_.batch.accumulation - micro_steps_; }

  void run_recorded(const nn::Batch& batch);  // Note [Recorded passes]
  void run_side_by_side(std::span<const nn::Batch> batches);
  // The stages of this rank of a pipeline, in the order of the step program.
  void run_pipeline(std::span<const nn::Batch> batches);
  MicroBatchKind kind_of(const parallel::PipelineOp& op) const;
  void backward_in_pipeline(parallel::PipelinePasses& passes, const parallel::PipelineOp& op);

  const EngineConfig& config_;
  nn::Model& model_;
  comm::World& whole_;
  parallel::PipelineCut* const cut_;
  const StepProgram& program_;
  Stores& stores_;
  WholeStep& step_;
  Runner& runner_;
  ForwardPasses& passes_;
  RecordedPasses* const recorded_;
  PhaseClock& clock_;
  Context& context_;
  SavedInputs saved_inputs_;
  StepTrace step_trace_;

  int64_t micro_steps_ = 0;  // micro-batches that the step under way has had
  int64_t forwards_ = 0;     // since the last step: numbers batches that carry no index
  int64_t backwards_ = 0;    // since the last step, uncounted ones of NoSync too
  bool no_sync_ = false;
  bool stepped_ = true;
  bool hands_over_ = false;  // run(): the update may begin during backward
};

}  // namespace zinc::zero
