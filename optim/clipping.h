// optim/clipping.h: the one factor that turns a summed gradient into the step's gradient.
//
// A backward pass leaves the sum over micro-batches and ranks of gradients of scaled losses. With
// divisor = loss scale x count (tokens or micro-batches), its mean has the global L2 norm
//   norm = summed_norm / divisor
// and clipping to c > 0 (DeepSpeed's form of Pascanu et al., ICML 2013, algorithm 1) divides by
//   f = max(1, (norm + 1e-6) / c)
// so that a norm up to c - 1e-6 is left alone and a larger one becomes c norm / (norm + 1e-6).
#pragma once

namespace zinc::optim {

struct GradientFactor {
  float factor = 1.0F;   // 1 / (divisor f), computed in f64, rounded once
  double norm = 0.0;     // of the mean gradient, before clipping
  bool clipped = false;  // f > 1
};

// divisor > 0; clipping >= 0, 0: off; else InvalidArgument. Where summed_norm is not finite the
// step has to be skipped: factor is 0.
GradientFactor gradient_factor(double summed_norm, double divisor, double clipping);

}  // namespace zinc::optim
