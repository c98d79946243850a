// zero/update/update_gate.h: makes updates wait while their values are read beside training.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "core/stall.h"
#include "core/trace.h"
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
  // Waits until no reader holds a part of the range. Called before the range changes. A wait that
  // blocks is recorded as a stall on the host's lane; `trace` may be null.
  void wait(int group, Range range, TraceRecorder* trace) const {
    wait_until(trace, [&](const Held& held) {
      return held.group != group || intersect(held.range, range).empty();
    });
  }
  bool is_held() const {
    const std::lock_guard lock(state_->mutex);
    return !state_->held.empty();
  }
  void wait_for_all() const {
    wait_until(nullptr, [](const Held&) { return false; });
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
  void wait_until(TraceRecorder* trace, const IsFree& is_free) const {
    std::unique_lock lock(state_->mutex);
    const auto all_free = [&] { return std::ranges::all_of(state_->held, is_free); };
    if (all_free()) return;
    const int64_t begin = trace != nullptr ? TraceRecorder::now_ns() : 0;
    state_->changed.wait(lock, all_free);
    if (trace == nullptr) return;
    trace->record({.kind = TraceKind::stall,
                   .lane = kHostLane,
                   .name = "checkpoint",
                   .begin_ns = begin,
                   .end_ns = TraceRecorder::now_ns()});
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace zinc::zero
