#include "apps/stop_signal.h"

#include <pthread.h>

#include <array>
#include <thread>

namespace zinc::apps {
namespace {

constexpr std::array kStopSignals = {SIGUSR1, SIGTERM, SIGINT};

std::atomic<bool> stop_requested{false};

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kStopSignals) sigaddset(&set, number);
  return set;
}

void listen() {
  const sigset_t set = stop_signals();
  for (int number = 0; sigwait(&set, &number) == 0;) {
    if (!stop_requested.exchange(true)) continue;
    std::signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    std::raise(number);
  }
}

}  // namespace

// A thread of its own waits for the signals: no thread that computes is interrupted, and what
// follows a signal may do more than a handler may.
const std::atomic<bool>& stop_on_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread(listen).detach();
  return stop_requested;
}

SignalsHeld::SignalsHeld() {
  const sigset_t held = stop_signals();
  pthread_sigmask(SIG_BLOCK, &held, &before_);
}

SignalsHeld::~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace zinc::apps
