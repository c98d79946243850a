// comm/agreement.h: checks that all ranks run the same thing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "comm/world.h"

namespace zinc::comm {

// A part of a run, and a hash of that part. Equal parts have equal hashes on all ranks.
struct Fingerprint {
  std::string name;  // "configuration", "data"
  uint64_t hash = 0;
};

// Throws ConfigError on every rank if a fingerprint differs from that of rank 0. The message names
// the fingerprint and the ranks. All ranks pass the same names in the same order. Collective;
// blocks the host. Does nothing in a world of one rank and on a meta device.
void require_agreement(World& world, std::span<const Fingerprint> fingerprints);

}  // namespace zinc::comm
