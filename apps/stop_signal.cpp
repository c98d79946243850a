#include "apps/stop_signal.h"

#include <pthread.h>

#include <array>

namespace zinc::apps {
namespace {

constexpr std::array kStopSignals = {SIGUSR1, SIGTERM, SIGINT};

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not take a lock");

void on_signal(int number) {
  if (stop_requested.exchange(true)) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
}

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : kStopSignals) sigaction(number, &action, nullptr);
  return stop_requested;
}

SignalsHeld::SignalsHeld() {
  sigset_t held;
  sigemptyset(&held);
  for (const int number : kStopSignals) sigaddset(&held, number);
  pthread_sigmask(SIG_BLOCK, &held, &before_);
}

SignalsHeld::~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace zinc::apps
