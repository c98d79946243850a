// zero/gather_values.h: a few numbers from every rank, for decisions that all ranks make alike.
#pragma once

#include <span>
#include <vector>

#include "comm/world.h"

namespace zinc::zero {

// Every rank's `values` (as many on each), rank after rank, on every rank. Collective; blocks the
// host. On a meta device: zeros.
std::vector<double> gather_values(comm::World& world, std::span<const double> values);
// True on every rank where it is true on one. Collective.
bool any_rank(comm::World& world, bool value);

}  // namespace zinc::zero
