// zero/update/update_gate.h: makes updates wait while their values are read beside training.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "zero/layout/shard_group.h"

namespace zinc::zero {

// While a Lease exists, the values it was given for do not change. Any thread may destroy it, even
// after the engine is gone.
using Lease = std::shared_ptr<const void>;

class UpdateGate {
 public:
  // Holds the weights and states of a range of a group's arena.
  Lease hold(int group, Range range) {
    const std::shared_ptr<State> state = state_;
    std::list<Held>::iterator held;
    {
      const std::lock_guard lock(state->mutex);
      held = state->held.insert(state->held.end(), {group, range});
    }
    return {this, [state, held](const void*) {
              {
                const std::lock_guard lock(state->mutex);
                state->held.erase(held);
              }
              state->changed.notify_all();
            }};
  }
  // Waits until nobody holds a part of the range. Called before the range changes.
  void wait(int group, Range range) const {
    wait_until([&](const Held& held) {
      return held.group != group || intersect(held.range, range).empty();
    });
  }
  bool is_held() const {
    const std::lock_guard lock(state_->mutex);
    return !state_->held.empty();
  }
  void wait_for_all() const {
    wait_until([](const Held&) { return false; });
  }

 private:
  struct Held {
    int group = 0;
    Range range;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::list<Held> held;
  };
  template <class IsFree>
  void wait_until(const IsFree& is_free) const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] {
      for (const Held& held : state_->held) {
        if (!is_free(held)) return false;
      }
      return true;
    });
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace zinc::zero
