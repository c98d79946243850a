#include "apps/stop_signal.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "core/error.h"

namespace zinc::apps {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> stop_requested{false};
std::mutex first_request_mutex;
std::optional<Clock::time_point> first_request;

// True for the first request, and for those that come too early to be another one.
bool is_the_same_request() {
  const std::lock_guard lock(first_request_mutex);
  const auto now = Clock::now();
  if (!first_request) first_request = now;
  return now - *first_request < kPatience;
}

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGUSR1, SIGTERM, SIGINT}) sigaddset(&set, number);
  if (!is_ignored(SIGHUP)) sigaddset(&set, SIGHUP);
  return set;
}

void listen() {
  const sigset_t set = stop_signals();
  for (int number = 0; sigwait(&set, &number) == 0;) {
    const bool same = is_the_same_request();
    stop_requested = true;
    if (same) continue;
    std::signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    std::raise(number);
  }
}

}  // namespace

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// A separate thread waits for the signals: no computing thread is interrupted, and the reaction may
// do more than a signal handler may.
const std::atomic<bool>& stop_on_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::thread(listen).detach();
  return stop_requested;
}

// mpirun waits its delay between CONT, TERM and KILL: a second by default.
std::string notice_of_mpirun(const std::function<const char*(const char*)>& environment) {
  if (environment("OMPI_COMM_WORLD_SIZE") == nullptr || environment("ZINC_HEARTBEATS") != nullptr) {
    return {};
  }
  const char* given = environment("OMPI_MCA_odls_base_sigkill_timeout");
  const int seconds = given == nullptr ? 1 : std::max(0, std::atoi(given));
  return str(
      "a TERM or Ctrl-C to mpirun kills the ranks ", 2 * seconds,
      " s later, whether or not their step is finished and saved; to stop with a checkpoint, "
      "send mpirun USR1, or start with zinc launch");
}

void request_stop() {
  is_the_same_request();
  stop_requested = true;
}

SignalsHeld::SignalsHeld() {
  const sigset_t held = stop_signals();
  pthread_sigmask(SIG_BLOCK, &held, &before_);
}

SignalsHeld::~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace zinc::apps
