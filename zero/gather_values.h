// zero/gather_values.h: a few numbers from every rank, for decisions that all ranks make alike;
// one failure for all.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"

namespace zinc::zero {

// Every rank's `values` (as many on each), rank after rank, on every rank. Collective; blocks the
// host where there are several ranks. On a meta device every rank has this one's values.
std::vector<double> gather_values(comm::World& world, std::span<const double> values);
// The last rank's alone. Collective.
std::vector<double> last_values(comm::World& world, std::span<const double> values);
// True on every rank where it is true on one. Collective.
bool any_rank(comm::World& world, bool value);

// Ends a piece of work that every rank did for itself: returns where all succeeded (`failure`
// null), throws the rank's own failure where it has one, and PeerFailed on the others. Collective.
void require_all_succeeded(comm::World& world, std::string_view operation,
                           const std::exception_ptr& failure);
// Rank 0's text, on every rank. Collective; blocks the host.
std::string share_text(comm::World& world, std::string_view text);

}  // namespace zinc::zero
