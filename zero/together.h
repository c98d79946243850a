// zero/together.h: a piece of work that every rank does for itself, with one outcome for all.
#pragma once

#include <exception>
#include <string_view>

#include "comm/world.h"
#include "zero/gather_values.h"

namespace zinc::zero {

// Returns where `work` succeeded on all ranks; throws the rank's own failure where it has one, and
// PeerFailed on the others. Collective.
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
