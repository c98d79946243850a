// kernels/adamw.h: one step of Adam (Kingma and Ba, ICLR 2015, algorithm 1) with decoupled weight
// decay (Loshchilov and Hutter, ICLR 2019, algorithm 2) or L2 regularisation, in one pass.
//
// Note [Bits of AdamW]
// Two devices give the same bits because the order of operations is part of the contract. Scalars,
// computed on the host in f64 and then rounded once to f32 (not at all for f64 weights):
//   b1 = beta1, c1 = 1 - beta1, b2 = beta2, c2 = 1 - beta2,
//   a = lr / (1 - beta1^step), s = 1 / sqrt(1 - beta2^step), decay = lr * weight_decay
// Per element; each line's operations in the order written and each rounded to nearest even;
// fma(x, y, z) = x * y + z rounded once; division and square root correctly rounded; denormals
// kept:
//   g = f(gradient) * factor
//   g = fma(weight_decay, w, g)      where mode is l2 and weight_decay != 0
//   m = fma(b1, m, c1 * g)
//   v = fma(b2, v, (c2 * g) * g)
//   d = fma(sqrt(v), s, eps)
//   w = fma(-decay, w, w)            where mode is decoupled and weight_decay != 0
//   w = fma(-a, m / d, w)
//   model_weights = round(w)
//
// Note [Moments in 16 bits]
// Moments of bf16 are widened for the arithmetic. The stored values are the new m and v after
// stochastic rounding (round_by_chance() in kernels/stochastic_rounding.h), with the low and the
// high half of the element's random word.
// w is computed from m and v before they are rounded.
#pragma once

#include <cstdint>
#include <span>

#include "core/philox.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"
#include "kernels/element_places.h"

namespace zinc::kernels {

enum class WeightDecay : uint8_t {
  decoupled,  // AdamW
  l2,         // Adam with the decay inside the gradient
};

struct AdamW {
  View weights;          // [n] f64 | f32 master weights, in place
  ConstView gradient;    // [n] f32 | bf16 | f16 (f64 with f64)
  View m, v;             // [n] dtype of weights, or bf16 both: the moments, in place
  View model_weights{};  // [n] bf16 | f16 | f32, overwrites; may be absent
  ConstView factor{};    // [1] f32 on the device: multiplies the gradient; absent: 1
  ConstView skip{};      // [1] i32 on the device, may be absent: non-zero leaves every bit as it is
  // [kNumAdamWScalars] f32 on the device, may be absent: what adamw_scalars() gave; the members
  // below are then not read. For f32 weights.
  ConstView scalars{};
  int64_t step = 1;  // number of this update, from 1
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  WeightDecay mode = WeightDecay::decoupled;
  // For moments in bf16: element i has the word random.bits(places.place(first_element + i)).
  // `scalars` hold random.counter_high too.
  RandomKey random{};
  int64_t first_element = 0;
  ElementPlaces places{};
};

// All views contiguous. Asynchronous on `stream`. Element i depends on element i alone.
void adamw(const AdamW& args, StreamRef stream);

inline constexpr int64_t kNumAdamWScalars = 11;
// The scalars of the note for f32 weights, b1 to decay and those of the mode, then the bits of
// random.counter_high, low half first; reads no view. So an update that is queued once can run with
// another learning rate and step each time.
void adamw_scalars(const AdamW& args, std::span<float> scalars);
Cost cost(const AdamW& args);

}  // namespace zinc::kernels
