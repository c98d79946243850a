// kernels/stochastic_rounding.h: stochastic rounding of f32 to bf16: the expected value of the
// rounded number is the value.
//
// Rounding to nearest would lose every change below half a step of bf16 (2^-9 of the value). So
// optimizer states in bf16 are rounded up with a probability equal to the distance from the lower
// neighbour, in steps. The same holds for weights that have no copy in f32.
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.h"
#include "core/philox.h"

namespace zinc::kernels {

// The low or high half of a random word as `random` adds up to one step in the 16 bits that bf16
// drops; a carry rounds up. Returns a value that bf16 holds. Infinities and NaNs stay as they are.
ZINC_HOST_DEVICE inline float round_by_chance(float x, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return std::bit_cast<float>((bits + (random & 0xffffu)) & 0xffff0000u);
}

// The words that round an element's weight, beside the words of `states` that round its states.
ZINC_HOST_DEVICE inline RandomKey random_of_weights(const RandomKey& states) {
  return {.key = states.key ^ 0xb492b66fbe98f273u, .counter_high = states.counter_high};
}

}  // namespace zinc::kernels
