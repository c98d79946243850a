// core/random_state.h: the position in training that decides which random numbers an op draws.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "core/philox.h"

namespace zinc {

// The engine sets (step, global micro-batch); an op names its site, a module path. The n-th draw of
// a site within one micro-batch has call number n. Recomputation takes a Snapshot before the
// forward pass and restores it before the replay, so that the replay draws the same numbers.
class RandomState {
 public:
  explicit RandomState(uint64_t seed = 0) : seed_(seed) {}

  uint64_t seed() const { return seed_; }
  uint64_t step() const { return step_; }
  uint64_t micro_batch() const { return micro_batch_; }

  // Forgets all call numbers, too.
  void set_position(uint64_t step, uint64_t global_micro_batch) {
    step_ = step;
    micro_batch_ = global_micro_batch;
    calls_.clear();
  }

  // The key of the next draw at `site` (hash_text of a module path).
  RandomKey next(Purpose purpose, uint64_t site) {
    const uint64_t call = calls_[site]++;
    return make_random_key(seed_, purpose, step_, micro_batch_, combine_bits(site, call));
  }

  struct Snapshot {
    uint64_t step = 0;
    uint64_t micro_batch = 0;
    std::unordered_map<uint64_t, uint64_t> calls;
  };
  Snapshot snapshot() const { return {step_, micro_batch_, calls_}; }
  void restore(const Snapshot& snapshot) {
    step_ = snapshot.step;
    micro_batch_ = snapshot.micro_batch;
    calls_ = snapshot.calls;
  }

 private:
  uint64_t seed_;
  uint64_t step_ = 0;
  uint64_t micro_batch_ = 0;
  std::unordered_map<uint64_t, uint64_t> calls_;
};

}  // namespace zinc
