#include "tests/apps/command_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/comm/mpi/leak_checker.h"
#include "tests/core/await.h"

namespace zinc::apps {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  return {ends[0], ends[1]};
}

// True while there may be more.
bool read_into(int& fd, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) {
    ::close(fd);
    fd = -1;
    return false;
  }
  text.append(buffer.data(), static_cast<size_t>(n));
  return true;
}

std::vector<std::string> on_ranks(const std::vector<std::string>& words,
                                  const CommandOptions& options) {
  if (options.ranks == 1) return words;
  std::vector<std::string> all{ZINC_MPIRUN,
                               "--oversubscribe",
                               "--bind-to",
                               "none",
                               "--allow-run-as-root",
                               "-np",
                               std::to_string(options.ranks)};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

// A command of ranks needs other settings of the leak checker than one without.
std::vector<std::string> with_leak_checker(std::vector<std::string> words, bool find_leaks) {
  if (std::ranges::find(words, ZINC_MPIRUN) == words.end()) return words;
  std::vector<std::string> first = leak_checker_environment(find_leaks);
  first.insert(first.begin(), "env");
  words.insert(words.begin(), first.begin(), first.end());
  return words;
}

std::vector<std::string> command_words(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{command_path()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

// Makes only calls that are allowed between fork and exec.
[[noreturn]] void become(char* const* words, const Pipe& out, const Pipe& err,
                         int64_t largest_file) {
  ::dup2(out.write, STDOUT_FILENO);
  ::dup2(err.write, STDERR_FILENO);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  for (const int number : {SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);  // tests may run by nohup
  if (largest_file >= 0) {
    const rlimit limit{static_cast<rlim_t>(largest_file), static_cast<rlim_t>(largest_file)};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
  }
  ::execvp(words[0], words);
  ::_exit(127);
}

}  // namespace

std::string to_string(const Ended& ended) {
  const std::string how = ended.signal != 0 ? "signal " + std::to_string(ended.signal)
                                            : "exit " + std::to_string(ended.exit_code);
  return how + "\nstdout: " + ended.out + "\nstderr: " + ended.err;
}

bool have_mpirun() { return std::string(ZINC_MPIRUN) != ""; }

std::string command_path() { return std::filesystem::absolute(ZINC_COMMAND).string(); }

CommandProcess::CommandProcess(const std::vector<std::string>& arguments,
                               const CommandOptions& options)
    : CommandProcess(Program{}, on_ranks(command_words(arguments), options), options) {}

CommandProcess CommandProcess::of_program(const std::vector<std::string>& words,
                                          const CommandOptions& options) {
  return {Program{}, on_ranks(words, options), options};
}

CommandProcess::CommandProcess(Program, const std::vector<std::string>& words,
                               const CommandOptions& options) {
  const Pipe out = make_pipe();
  const Pipe err = make_pipe();
  std::vector<std::string> copies = with_leak_checker(words, options.find_leaks);
  std::vector<char*> pointers;
  for (std::string& word : copies) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) become(pointers.data(), out, err, options.largest_file);
  ::close(out.write);
  ::close(err.write);
  out_ = out.read;
  err_ = err.read;
}

CommandProcess::~CommandProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) ::close(out_);
  if (err_ >= 0) ::close(err_);
}

bool CommandProcess::read_more() {
  std::array<pollfd, 2> both = {pollfd{out_, POLLIN, 0}, pollfd{err_, POLLIN, 0}};
  if (out_ < 0 && err_ < 0) return false;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline_ - std::chrono::steady_clock::now());
  if (left.count() <= 0) {
    ended_.err += "[killed by the test: out of time]";
    ::kill(pid_, SIGKILL);
    return false;
  }
  if (::poll(both.data(), both.size(), static_cast<int>(left.count())) < 0) return errno == EINTR;
  if (both[0].revents != 0) read_into(out_, ended_.out);
  if (both[1].revents != 0) read_into(err_, ended_.err);
  return true;
}

bool CommandProcess::wait_for_output(const std::string& text) {
  while (ended_.out.find(text) == std::string::npos) {
    if (!read_more()) return false;
  }
  return true;
}

bool CommandProcess::is_running() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

void CommandProcess::close_output() {
  if (out_ >= 0) ::close(out_);
  out_ = -1;
}

// kill(-1) would reach every process of the machine.
void CommandProcess::send(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

bool CommandProcess::send_and_wait(int signal) const {
  send(signal);
  const auto is_pending = [&] {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string word; status >> word;) {
      if (word != "ShdPnd:") continue;
      status >> word;
      return (std::stoull(word, nullptr, 16) >> (signal - 1) & 1) != 0;
    }
    return false;
  };
  await([&] { return !is_running() || !is_pending(); });
  return is_running();
}

Ended CommandProcess::finish() {
  while (read_more()) {
  }
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFEXITED(status)) ended_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended_.signal = WTERMSIG(status);
  return ended_;
}

Ended run_zinc(const std::vector<std::string>& arguments, const CommandOptions& options) {
  return CommandProcess(arguments, options).finish();
}

}  // namespace zinc::apps
