// Runs the built zinc command as a child process, as a user would.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace zinc::apps {

struct Ended {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::string out;
  std::string err;
};

// "exit 65\nstdout: ...\nstderr: ...", for the message of a test that fails.
std::string to_string(const Ended& ended);

struct CommandOptions {
  int ranks = 1;  // more: under mpirun; ASSERT have_mpirun() first
  // Largest file that the child may write, in bytes; a write beyond it fails as on a full disk
  // (with EFBIG, because SIGXFSZ is ignored). -1: no limit.
  int64_t largest_file = -1;
  // For a command of several ranks, under the address sanitizer. The leak check takes such a job
  // five times as long (tests/comm/mpi/leak_checker.h): one job of each kind is enough.
  bool find_leaks = true;
};

bool have_mpirun();
std::string command_path();

class CommandProcess {
 public:
  // `zinc arguments...`
  explicit CommandProcess(const std::vector<std::string>& arguments,
                          const CommandOptions& options = {});
  // Any program, found in PATH.
  static CommandProcess of_program(const std::vector<std::string>& words,
                                   const CommandOptions& options = {});
  CommandProcess(CommandProcess&&) = delete;
  ~CommandProcess();  // kills what still runs

  // Waits until stdout holds `text`; false where the process ended first, or was killed because
  // it took kHang.
  bool wait_for_output(const std::string& text);
  void send(int signal) const;
  // Sends `signal` and waits until the process has taken it; false where the process ended first.
  bool send_and_wait(int signal) const;
  bool is_running() const;
  // Nobody reads its stdout any more, as when `head` has read enough.
  void close_output();
  Ended finish();

 private:
  // A limit that only ends a hang.
  static constexpr std::chrono::seconds kHang{200};
  struct Program {};
  CommandProcess(Program, const std::vector<std::string>& words, const CommandOptions& options);
  bool read_more();  // false at the end of both streams

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  Ended ended_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::now() + kHang;
};

Ended run_zinc(const std::vector<std::string>& arguments, const CommandOptions& options = {});

}  // namespace zinc::apps
