// tests/apps/patience.h: signals that have to come within kPatience of the first one.
#pragma once

#include <chrono>
#include <functional>

#include <gtest/gtest.h>

#include "apps/stop_signal.h"

namespace zinc::apps {

using Clock = std::chrono::steady_clock;

static_assert(kPatience == std::chrono::seconds(2), "the manual says two seconds");

// `attempt` sends a process a first signal, waits until it has taken a last one, and returns the
// time between. If the machine stood still in between, for kPatience or more, the last signal has
// ended the process: `attempt` expects nothing then, and is made again.
inline void in_less_than_the_patience(const std::function<Clock::duration()>& attempt) {
  constexpr int kAttempts = 20;
  for (int i = 0; i < kAttempts; ++i) {
    if (attempt() < kPatience) return;
  }
  FAIL() << "each of " << kAttempts << " times this machine stood still for two seconds";
}

}  // namespace zinc::apps
