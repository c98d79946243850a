// zero/together.h: work that every rank does for itself, with one outcome for all ranks.
#pragma once

#include <exception>
#include <string_view>

#include "comm/world.h"
#include "zero/gather_values.h"

namespace zinc::zero {

// Runs `work`. Returns if it succeeded on all ranks. Otherwise throws the rank's own error where
// there is one, and PeerFailed on the other ranks. Collective.
template <class Work>
void together(comm::World& world, std::string_view operation, const Work& work) {
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  require_all_succeeded(world, operation, failure);
}

}  // namespace zinc::zero
