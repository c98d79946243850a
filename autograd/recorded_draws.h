// autograd/recorded_draws.h: random numbers for work that is recorded once and launched again (CUDA
// graphs).
//
// The key of a random number contains step and micro-batch. A recorded kernel would repeat that
// key. So while RecordedDraws are set in the mode, dropout gives its kernels the address of that
// part of the key on the device (kernels/cuda/random_counter.h). set_position() writes it there
// before a launch. The numbers are those of work that is not recorded.
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
  // Takes the draws of `state` since its position was set. All later runs draw as often at the same
  // sites. Takes 8 bytes per draw on the current context's device.
  explicit RecordedDraws(const RandomState& state);

  bool are_those_of(const RandomState& state) const;
  // Queues the keys of the state's position on the compute stream. The state's count of calls does
  // not matter.
  void set_position(const RandomState& state);

  // The place of a key's counter: [1] i64 on the device. Throws InternalError for a key of another
  // position.
  ConstView counter_of(const RandomKey& key);
  // True if counter_of() was called for each draw since set_position().
  bool were_all_placed() const { return placed_.size() == places_.size(); }

 private:
  // (site, number of draws), in the order of sites
  std::vector<std::pair<uint64_t, uint64_t>> calls_;
  Tensor counters_;                               // [draws] i64
  std::unordered_map<uint64_t, int64_t> places_;  // index in counters_, by counter
  std::unordered_set<uint64_t> placed_;
};

// The next draw of dropout at `site` in the current context.
struct Draw {
  RandomKey key;
  ConstView counter{};  // absent: the key alone counts
};
Draw draw(uint64_t site);

}  // namespace zinc::autograd
