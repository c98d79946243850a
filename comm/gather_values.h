// comm/gather_values.h: exchanges small values between ranks, for decisions that all ranks make
// alike.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"

namespace zinc::comm {

// Returns the `values` of all ranks, rank after rank, on every rank. All ranks pass the same number
// of values. Collective; blocks the host if there are several ranks. On a meta device every rank
// has this rank's values.
std::vector<double> gather_values(World& world, std::span<const double> values);
// The last rank's values, on every rank. Collective.
std::vector<double> last_values(World& world, std::span<const double> values);
// True on every rank if `value` is true on any rank. Collective.
bool any_rank(World& world, bool value);

// Call after work that every rank did for itself. `failure`: the rank's own error, or null. Returns
// if no rank failed. Otherwise throws the rank's own error where there is one, and PeerFailed on
// the other ranks. Collective.
void require_all_succeeded(World& world, std::string_view operation,
                           const std::exception_ptr& failure);
// Runs `work`, which every rank does for itself, with one outcome for all ranks: as
// require_all_succeeded() says. Collective.
template <class Work>
void together(World& world, std::string_view operation, const Work& work) {
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  require_all_succeeded(world, operation, failure);
}

// Returns the text of rank 0 on every rank. Collective; blocks the host.
std::string share_text(World& world, std::string_view text);

}  // namespace zinc::comm
