// kernels/sgd.h: one step of stochastic gradient descent with momentum (Sutskever et al., ICML
// 2013, in the form in which the learning rate scales the velocity at the step).
//
// Per element, every operation rounded to f32 (f64 for f64), fma(a, b, c) = a * b + c rounded once,
// host scalars computed in f64 and rounded once:
//   g = f(gradient) * factor
//   g = fma(weight_decay, w, g)                                    where weight_decay != 0
//   velocity = first_step ? g : fma(momentum, velocity, (1 - dampening) * g)   where momentum != 0
//   d = nesterov ? fma(momentum, velocity, g) : velocity           (d = g without momentum)
//   w = fma(-lr, d, w)
//   model_weights = round(w)
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Sgd {
  View weights;          // [n] f64 | f32 master weights, in place
  ConstView gradient;    // [n] f32 | bf16 | f16 (f64 with f64)
  View velocity{};       // [n] dtype of weights, in place; absent where momentum is 0
  View model_weights{};  // [n] bf16 | f16 | f32, overwrites; may be absent
  ConstView factor{};    // [1] f32 on the device; absent: 1
  ConstView skip{};      // [1] i32 on the device, may be absent: non-zero leaves every bit as it is
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;    // needs momentum > 0 and dampening 0
  bool first_step = false;  // velocity is overwritten, not read
};

// All views contiguous. Asynchronous on `stream`. Element i depends on element i alone.
void sgd(const Sgd& args, StreamRef stream);
Cost cost(const Sgd& args);

}  // namespace zinc::kernels
