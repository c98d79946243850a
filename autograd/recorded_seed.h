// autograd/recorded_seed.h: the seed of backward passes that are recorded once and launched again
// (CUDA graphs).
//
// A recorded kernel that took the seed by value would repeat it. So the seed lies on the device,
// and set() writes it there before a launch. Gradients have the same bits as with a seed by value.
#pragma once

#include <optional>

#include "core/view.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

class RecordedSeed {
 public:
  // Takes 8 bytes on the current context's device.
  RecordedSeed();

  // Queues the seed on the compute stream if it differs from the last one.
  void set(double seed);

  // The gradient of a loss, f32 scalar.
  const Tensor& gradient() const { return gradient_; }
  // [1] f32: 1 / seed, rounded from f64, for kernels::Scale.
  ConstView reciprocal() const { return both_.view().narrow(0, 1, 1); }

 private:
  Tensor both_;  // [2] f32: seed, 1 / seed
  Tensor gradient_;
  std::optional<double> seed_;
};

}  // namespace zinc::autograd
