// autograd/recorded_seed.h: the seed of backward passes that are recorded once and launched again.
//
// A kernel that took it by value would repeat it. So it lies on the device, where set() writes it
// before a launch; the gradients are those of a seed by value, bit for bit.
#pragma once

#include <optional>

#include "core/view.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

class RecordedSeed {
 public:
  // Takes 8 bytes on the current context's device.
  RecordedSeed();

  // Queued on the compute stream where it differs from the last.
  void set(double seed);

  // The gradient of a loss, f32 scalar.
  const Tensor& gradient() const { return gradient_; }
  // [1] f32, rounded from f64: what kernels::Scale makes of 1 / seed.
  ConstView reciprocal() const { return both_.view().narrow(0, 1, 1); }

 private:
  Tensor both_;  // [2] f32: seed, 1 / seed
  Tensor gradient_;
  std::optional<double> seed_;
};

}  // namespace zinc::autograd
