// zero/update/recorded_step.h: what the device does in a step, as CUDA graphs.
//
// Note [Recorded step]
// With "cuda_graph" the step is recorded, like the passes (Note [Recorded passes]), if the device
// decides over it (Note [Verdict on the device]) and the optimizer reads its scalars on the device.
// There are two parts, and between them the gather between ranks: the sums of squares; the verdict,
// the update, and the result's way to the host. Norm, factor, skip and loss scale never leave the
// device. Learning rate and bias corrections are written before each launch to where the kernels
// read them. The first step runs as ever.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/context.h"
#include "core/cuda_backend.h"
#include "core/kept_memory.h"

namespace zinc::zero {

class RecordedStep {
 public:
  // `memory`: of all that is recorded. Both must outlive this.
  RecordedStep(Context& context, KeptMemory& memory) : context_(context), memory_(memory) {}

  // A part of a step. The first time `work` runs; the second time what it queues is recorded; from
  // then on that is launched.
  enum class Part : uint8_t { norm, update };
  void run(Part part, const std::function<void()>& work);
  // Call when memory that the parts use has moved: they are recorded anew. Waits for the compute
  // stream.
  void forget();

  int64_t num_launched() const { return num_launched_; }

 private:
  struct Recorded {
    bool is_warm = false;
    std::unique_ptr<CudaGraph> graph;
  };

  Context& context_;
  KeptMemory& memory_;
  std::array<Recorded, 2> parts_;
  int64_t num_launched_ = 0;
};

}  // namespace zinc::zero
