// zero/run/recorded_passes.h: forward and backward of a micro-batch as a CUDA graph.
//
// Note [Recorded passes]
// The first step runs without a graph: libraries load what they need, and sums of gradients get
// their memory. Then the passes of a micro-batch are recorded once per kind. For every later
// micro-batch of the kind they are launched as one graph, and the model's code does not run. So
// every argument that a kernel takes by value must be the same at every launch:
//   batches    are copied to a place of their own first. Their shapes must not change
//   addresses  weights and sums stay where they are. The memory of all else is kept for the graph
//              (core/kept_memory.h); all kinds share it
//   the loss's gradient: the loss scale, or the scale over the batch's targets. Kernels read it on
//              the device; it is written before each launch (autograd/recorded_seed.h)
//   random numbers, keyed by step and micro-batch. Kernels read that part of the key on the device;
//              it is written before each launch (autograd/recorded_draws.h)
// On stage 3 gathers are part of the graph, on the gather stream, and so are the arenas that they
// fill (Note [Streams of a recording] in core/cuda/recording.h). A pass begins and ends with all
// groups sharded. Reductions between ranks are not recorded. They begin when the launch is queued;
// the next launch waits for them if it writes what they read.
#pragma once

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
#include "zero/update/whole_step.h"

namespace zinc::zero {

class RecordedPasses {
 public:
  // Forward and backward of a batch, until its gradients are complete. Returns the loss. The seed
  // is the loss's gradient.
  using Passes = std::function<Tensor(const nn::Batch&, const autograd::RecordedSeed&)>;

  // All must outlive this.
  RecordedPasses(Context& context, GradientStore& gradients, comm::Communicator& communicator);
  ~RecordedPasses();  // waits for the compute stream
  RecordedPasses(const RecordedPasses&) = delete;
  RecordedPasses& operator=(const RecordedPasses&) = delete;

  // Queues what `passes` would. Call between begin_micro_steps() and complete_micro_steps(), with
  // the random state at the micro-batch. Returns the loss, f32 without a history, for work on the
  // compute stream until the next call. Throws ConfigError if the model draws other random numbers
  // than in the micro-batch before, or by ops that are not autograd's; InvalidArgument for a batch
  // of other shapes; and what record_cuda_graph() throws.
  Tensor run(const nn::Batch& batch, const MicroBatchKind& kind, double seed, const Passes& passes);

  RecordedStep& step() { return step_; }

  int64_t num_recorded() const { return num_recorded_; }
  int64_t num_launched() const { return num_launched_; }

 private:
  struct Recorded {
    std::unique_ptr<CudaGraph> graph;  // null on a meta device
    Tensor loss;
    GradientProgress progress;
  };

  // Runs or records the passes; memory that they take and give back is kept.
  Recorded record(const Passes& passes);
  Tensor run_first(const nn::Batch& batch, const Passes& passes);
  void require_same_draws() const;

  Context& context_;
  GradientStore& gradients_;
  comm::Communicator& communicator_;
  KeptMemory memory_;
  RecordedStep step_;
  bool is_warm_ = false;
  autograd::RecordedSeed seed_;
  std::optional<autograd::RecordedDraws> draws_;
  nn::Batch inputs_;
  std::map<MicroBatchKind, Recorded> graphs_;
  int64_t num_recorded_ = 0;
  int64_t num_launched_ = 0;
};

// Null without EngineConfig::cuda_graph.
std::unique_ptr<RecordedPasses> make_recorded_passes(const EngineConfig& config, comm::World& world,
                                                     GradientStore& gradients);

}  // namespace zinc::zero
