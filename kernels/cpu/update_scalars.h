// kernels/cpu/update_scalars.h: the scalars of an update rule's row, and the key of its rounding.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/element_update.h"

namespace zinc::kernels::cpu {

// A: float, or double.
template <class A>
struct StepScalars {
  A factor = 1;
  std::array<A, kMaxUpdateScalars> values{};
};

// Reads `factor` and `values` from device memory: called on the stream.
template <class A>
StepScalars<A> step_scalars(const ElementUpdate& args) {
  StepScalars<A> scalars;
  if (args.factor) scalars.factor = A(*args.factor.data_as<float>());
  const UpdateScalars in_f64 = update_scalars(args.rule, args.constants, args.step);
  for (size_t i = 0; i < static_cast<size_t>(num_scalars(args.rule)); ++i) {
    scalars.values[i] = args.values ? args.values.data_as<A>()[i] : static_cast<A>(in_f64[i]);
  }
  return scalars;
}

inline RandomKey step_random(const ElementUpdate& args) {
  RandomKey key = args.random;
  if (!args.values) return key;
  const float* halves = args.values.data_as<float>() + num_scalars(args.rule);
  key.counter_high =
      uint64_t{std::bit_cast<uint32_t>(halves[1])} << 32 | std::bit_cast<uint32_t>(halves[0]);
  return key;
}

}  // namespace zinc::kernels::cpu
