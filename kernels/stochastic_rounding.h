// kernels/stochastic_rounding.h: stochastic rounding of f32 to bf16, so that the mean of what is
// stored is the value.
//
// A value that changes by less than half a step of bf16 at a time (2^-9 of itself) would never
// change by rounding to nearest. So optimizer states in bf16 are rounded up with the probability
// that is the value's distance from the lower neighbour, in steps.
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.h"

namespace zinc::kernels {

// The low or high half of a random word as `random` adds up to one step in the 16 bits that bf16
// drops; a carry rounds up. Returns a value that bf16 holds. Infinities and NaNs stay as they are.
ZINC_HOST_DEVICE inline float round_by_chance(float x, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return std::bit_cast<float>((bits + (random & 0xffffu)) & 0xffff0000u);
}

}  // namespace zinc::kernels
