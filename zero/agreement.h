// zero/agreement.h: do all ranks run the same thing?
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "comm/world.h"

namespace zinc::zero {

// A part of what a run is made of, and a hash of it that is equal on ranks that have the same.
struct Fingerprint {
  std::string name;  // "configuration", "data"
  uint64_t hash = 0;
};

// Throws ConfigError, on every rank, where a fingerprint differs from rank 0's: says which, and on
// which ranks. All ranks pass the same names in the same order. Collective; blocks the host.
// Nothing in a world of one and on a meta device.
void require_agreement(comm::World& world, std::span<const Fingerprint> fingerprints);

}  // namespace zinc::zero
