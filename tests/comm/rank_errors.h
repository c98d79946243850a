// tests/comm/rank_errors.h: what became of every rank of a group in which something goes wrong.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/comm/rank_data.h"

namespace zinc::comm::testing {

// Runs `body` on every rank and returns what CommError each one got; a rank whose body returns has
// none. The errors of ranks do not reach run_ranks, so all of them are kept.
inline std::map<int, std::string> errors_of_ranks(
    std::vector<std::unique_ptr<Communicator>> communicators, const ConnectOptions& options,
    const std::function<void(World&)>& body) {
  std::map<int, std::string> errors;
  std::mutex mutex;
  run_ranks(std::move(communicators), options, [&](World& world) {
    try {
      body(world);
    } catch (const CommError& error) {
      const std::lock_guard lock(mutex);
      errors[world.rank()] = error.what();
    }
  });
  return errors;
}

// Gathers `n` values of each rank.
inline void all_gather(const Rank& rank, int64_t n) {
  auto shard = values_of<float>(rank.rank(), n, 1);
  std::vector<float> out(static_cast<size_t>(n * rank.size()));
  rank.group.all_gather({view_of(shard), view_of(out)}, rank.gather()).wait();
}

// Every rank sends 5 values to every other one, but rank 1 expects `expected` of rank 0. Rank 1
// must not take a value.
inline void exchange_with_a_wrong_count(const Rank& rank, int64_t expected) {
  const auto size = static_cast<size_t>(rank.size());
  AllToAllCounts counts{.sent = std::vector<int64_t>(size, 5),
                        .received = std::vector<int64_t>(size, 5),
                        .largest = 5};
  if (rank.rank() == 1) counts.received[0] = expected;
  std::vector<float> in(5 * size, 1.0f);
  std::vector<float> out(5 * (size - 1) + static_cast<size_t>(counts.received[0]), 7.0f);
  try {
    rank.group.all_to_all({view_of(in), view_of(out), &counts}, rank.gather()).wait();
  } catch (const CommError&) {
    for (int64_t i = 0; i < expected && rank.rank() == 1; ++i) {
      EXPECT_EQ(out[static_cast<size_t>(i)], 7.0f);
    }
    throw;
  }
  rank.group.barrier(rank.gather()).wait();
}

}  // namespace zinc::comm::testing
