// autograd/recorded_draws.h: random numbers of work that is recorded once and launched again.
//
// What an op draws is keyed by step and micro-batch, which a recorded kernel would repeat. So while
// RecordedDraws are the mode's, the ops of dropout give their kernels the place of that part of the
// key on the device (kernels/cuda/random_counter.h), and set_position() writes it there before a
// launch: the same numbers as without a recording.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/random_state.h"
#include "core/view.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

class RecordedDraws {
 public:
  // Of `state` since its position was set; all later runs draw as often at the same sites. Takes 8
  // bytes on the current context's device for each.
  explicit RecordedDraws(const RandomState& state);

  bool are_those_of(const RandomState& state) const;
  // Queues the keys of the state's position on the compute stream; its calls do not count.
  void set_position(const RandomState& state);

  // [1] i64, of a key of that position. Throws InternalError for another.
  ConstView counter_of(const RandomKey& key);
  // Whether counter_of() was asked for each draw since set_position().
  bool were_all_placed() const { return placed_.size() == places_.size(); }

 private:
  std::vector<std::pair<uint64_t, uint64_t>> calls_;  // of each site, in order of sites
  Tensor counters_;                                   // [draws] i64
  std::unordered_map<uint64_t, int64_t> places_;      // by counter
  std::unordered_set<uint64_t> placed_;
};

// The next draw of dropout at `site` in the current context.
struct Draw {
  RandomKey key;
  ConstView counter{};  // absent: the key is all
};
Draw draw(uint64_t site);

}  // namespace zinc::autograd
