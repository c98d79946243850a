// apps/stop_signal.h: the first USR1, TERM or INT asks a run to end after its step; the second one
// ends the process at once.
#pragma once

#include <atomic>
#include <csignal>

namespace zinc::apps {

// Blocks the signals in this thread and those it starts later; a thread waits for them. Call once.
const std::atomic<bool>& stop_on_signals();

// Threads that are started while one of these lives never take the three signals: the threads of
// MPI and of the streams are not interrupted in what they do. Signals that come meanwhile wait.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace zinc::apps
