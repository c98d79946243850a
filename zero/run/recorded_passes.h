// zero/run/recorded_passes.h: forward and backward of a micro-batch as a CUDA graph.
//
// Note [Recorded passes]
// The first step runs as ever: libraries load what they need, and the sums of gradients find their
// place. From then on the passes of a micro-batch are recorded once per kind and launched as one
// graph for every later micro-batch of that kind, while the model's code does not run. So all that
// a kernel takes by value must be the same at every launch:
//   batches     are copied to a place of their own first; their shapes must not change
//   addresses   weights and sums stay where they are; the memory of all else is kept for the graph
//               (core/kept_memory.h), which all kinds share
//   the loss's gradient, which is the loss scale, or that over the batch's targets: kernels read it
//               on the device, where it is written before each launch (autograd/recorded_seed.h)
//   random numbers, keyed by step and micro-batch: kernels read that part of the key on the device,
//               where it is written before each launch (autograd/recorded_draws.h)
// On stage 3 gathers are part of the graph, ahead of their use on the gather stream as ever, and so
// are the arenas that they fill (Note [Streams of a recording] in core/cuda/recording.h); a pass
// begins and ends with all groups sharded. Reductions between ranks are not recorded: they begin
// when the launch is queued, and the next launch waits for them where they read what it writes.
//
// Note [Recorded step]
// Where the verdict over a step is the device's (Note [Verdict on the device]) and the optimizer
// takes its scalars from there, the step is recorded too, in two parts with the gather between
// ranks between them: the sums of squares, and the verdict with the update and its way to the host.
// Norm, factor, skip and loss scale never leave the device; learning rate and bias corrections are
// written where the kernels read them before each launch. The first step runs as ever.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "autograd/recorded_draws.h"
#include "autograd/recorded_seed.h"
#include "comm/world.h"
#include "core/context.h"
#include "core/cuda_backend.h"
#include "core/kept_memory.h"
#include "nn/batch.h"
#include "zero/engine_config.h"
#include "zero/group/gradient_store.h"
#include "zero/program/program.h"

namespace zinc::zero {

class RecordedPasses {
 public:
  // Forward and backward of the batch, gradients complete; gives the loss, whose gradient is the
  // seed.
  using Passes = std::function<Tensor(const nn::Batch&, const autograd::RecordedSeed&)>;

  // All must outlive this.
  RecordedPasses(Context& context, GradientStore& gradients, comm::Communicator& communicator);
  ~RecordedPasses();  // waits for the compute stream
  RecordedPasses(const RecordedPasses&) = delete;
  RecordedPasses& operator=(const RecordedPasses&) = delete;

  // Between begin_micro_steps() and complete_micro_steps(), with the random state at the
  // micro-batch. Queues what `passes` would; the loss, f32 without a history, is ready for compute
  // until the next call. Throws ConfigError for a model that draws other random numbers from one
  // micro-batch to the next, or by other ops than those of autograd, InvalidArgument for a batch of
  // other shapes, and what record_cuda_graph() throws.
  Tensor run(const nn::Batch& batch, const MicroBatchKind& kind, double seed, const Passes& passes);

  // A part of a step: what `work` queues is recorded the second time and launched from then on.
  enum class StepPart : uint8_t { norm, update };
  void run_step(StepPart part, const std::function<void()>& work);
  // The parts are recorded anew: what they name has moved. Waits for the compute stream.
  void forget_step();

  int64_t num_recorded() const { return num_recorded_; }
  int64_t num_launched() const { return num_launched_; }
  int64_t num_step_parts_launched() const { return num_step_parts_launched_; }

 private:
  struct Recorded {
    std::unique_ptr<CudaGraph> graph;  // null on a meta device
    Tensor loss;
    GradientProgress progress;
  };

  // Runs or records the passes; what they take and give back is kept.
  Recorded record(const Passes& passes);
  Tensor run_first(const nn::Batch& batch, const Passes& passes);
  void require_same_draws() const;

  Context& context_;
  GradientStore& gradients_;
  comm::Communicator& communicator_;
  KeptMemory memory_;
  bool is_warm_ = false;
  autograd::RecordedSeed seed_;
  std::optional<autograd::RecordedDraws> draws_;
  nn::Batch inputs_;
  std::map<MicroBatchKind, Recorded> graphs_;
  int64_t num_recorded_ = 0;
  int64_t num_launched_ = 0;
  struct RecordedPart {
    bool is_warm = false;
    std::unique_ptr<CudaGraph> graph;
  };
  std::array<RecordedPart, 2> step_parts_;
  int64_t num_step_parts_launched_ = 0;
};

// Null without EngineConfig::cuda_graph. Throws ConfigError for a dynamic model.
std::unique_ptr<RecordedPasses> make_recorded_passes(const EngineConfig& config, bool dynamic_model,
                                                     comm::World& world, GradientStore& gradients);

}  // namespace zinc::zero
