// tests/emulator/seeded_runs.h: one run under many schedules.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/emulator/grid.h"

namespace zinc::emulator {

inline constexpr int kSeeds = 20;

// The failure of each seed under which a run is not right: a Fault's message, or "wrong values".
inline std::vector<std::string> failures(const std::function<bool()>& run_and_check) {
  std::vector<std::string> result;
  for (int seed = 0; seed < kSeeds; ++seed) {
    set_seed(static_cast<uint64_t>(seed));
    try {
      if (!run_and_check()) result.emplace_back("wrong values");
    } catch (const Fault& fault) {
      result.emplace_back(fault.what());
    }
  }
  return result;
}

}  // namespace zinc::emulator
