// kernels/cpu/adamw_scalars.h: the host scalars of Note [Bits of AdamW].
#pragma once

#include <bit>
#include <cmath>

#include "kernels/adamw.h"

namespace zinc::kernels::cpu {

// `decay` is 0 outside decoupled mode, `l2` outside l2 mode.
template <class A>
struct AdamWScalars {
  A factor, b1, c1, b2, c2, a, s, eps, decay, l2;
};

// Reads `factor` and `scalars` from device memory: called on the stream.
template <class A>
AdamWScalars<A> adamw_scalars(const AdamW& args) {
  const A factor = args.factor ? A(*args.factor.data_as<float>()) : A(1);
  if (args.scalars) {
    const float* k = args.scalars.data_as<float>();
    return {factor,  A(k[0]), A(k[1]), A(k[2]), A(k[3]),
            A(k[4]), A(k[5]), A(k[6]), A(k[7]), A(k[8])};
  }
  const auto step = static_cast<double>(args.step);
  const double correction1 = 1.0 - std::pow(args.beta1, step);
  const double correction2 = 1.0 - std::pow(args.beta2, step);
  const bool decoupled = args.mode == WeightDecay::decoupled;
  return {.factor = factor,
          .b1 = static_cast<A>(args.beta1),
          .c1 = static_cast<A>(1.0 - args.beta1),
          .b2 = static_cast<A>(args.beta2),
          .c2 = static_cast<A>(1.0 - args.beta2),
          .a = static_cast<A>(args.lr / correction1),
          .s = static_cast<A>(1.0 / std::sqrt(correction2)),
          .eps = static_cast<A>(args.eps),
          .decay = static_cast<A>(decoupled ? args.lr * args.weight_decay : 0.0),
          .l2 = static_cast<A>(decoupled ? 0.0 : args.weight_decay)};
}

// The key of the moments' rounding; reads `scalars` as above.
inline RandomKey adamw_random(const AdamW& args) {
  RandomKey key = args.random;
  if (!args.scalars) return key;
  const float* halves = args.scalars.data_as<float>() + kNumAdamWScalars - 2;
  key.counter_high =
      uint64_t{std::bit_cast<uint32_t>(halves[1])} << 32 | std::bit_cast<uint32_t>(halves[0]);
  return key;
}

}  // namespace zinc::kernels::cpu
