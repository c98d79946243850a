// apps/stop_signal.h: the first USR1, TERM, INT or HUP asks a run to end after its step, and so
// does an output pipe without a reader.
//
// Senders repeat themselves: `timeout` signals the process and then its group, a shell its job and
// its processes. So a second signal ends the process at once only if it comes kPatience or more
// after the first request; an earlier one only prints the state.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>

namespace zinc::apps {

inline constexpr std::chrono::seconds kPatience{2};

// Blocks the signals in this thread and those it starts later; a thread waits for them. HUP is left
// alone where the process was started to ignore it (nohup). PIPE is ignored from now on: a write to
// a pipe without a reader fails with EPIPE. Call once.
const std::atomic<bool>& stop_on_signals();

// The request without a signal. Any thread.
void request_stop();

// For a process that Open MPI's mpirun started, and not `zinc launch`: the effect of a TERM or INT
// to mpirun on the run, and the way that saves it. `environment` gives the value of a variable, or
// null. Empty: nothing to say.
std::string notice_of_mpirun(const std::function<const char*(const char*)>& environment);

// Threads that are started while such an object lives never take the signals: the threads of MPI
// and of the streams are not interrupted. Signals that come meanwhile wait.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

// Whether this process ignored the signal from its start.
bool is_ignored(int signal);

}  // namespace zinc::apps
