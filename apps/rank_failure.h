// apps/rank_failure.h: work of several ranks with one outcome: one message, one exit code.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <vector>

#include "comm/gather_values.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/exit_codes.h"

namespace zinc::apps {

// Prints "zinc: <message>" to stderr, after what stdout still holds, and returns the code.
inline int report(const Failure& failure) {
  std::fflush(stdout);
  std::fprintf(stderr, "zinc: %s\n", failure.message.c_str());
  return failure.code;
}

// `work` on every rank. Where it throws on some, the first of those says why, so that there is one
// message, and all end with its code: nobody goes on alone, and nobody leaves before it is said,
// because mpirun ends the job at the first rank that fails. Collective.
template <class Work>
std::optional<int> fails_on_a_rank(comm::World& world, Work&& work) {
  std::optional<Failure> failure;
  try {
    work();
  } catch (const PeerFailed&) {  // the other rank's message is the one
  } catch (...) {
    failure = describe(std::current_exception());
  }
  const double mine = failure ? failure->code : kDone;
  const std::vector<double> codes = comm::gather_values(world, {&mine, 1});
  const auto first = std::find_if(codes.begin(), codes.end(), [](double c) { return c != 0.0; });
  if (first == codes.end()) return std::nullopt;
  if (first - codes.begin() == world.rank()) report(*failure);
  comm::any_rank(world, false);  // a barrier
  return static_cast<int>(*first);
}

}  // namespace zinc::apps
