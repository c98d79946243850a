// zinc launch: ranks on hosts, by mpirun.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "apps/command.h"
#include "apps/launch/launch_grammar.h"
#include "apps/stop_signal.h"
#include "comm/heartbeat.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "core/processors.h"
#include "files/input_file.h"

namespace zinc::apps {
namespace {

constexpr const char* kDefaultHostfile = "/job/hostfile";

struct LaunchArguments {
  std::string hostfile;
  std::string heartbeats;
  HostSelection selection;
  MpirunOptions mpirun;
  bool dry_run = false;
};

std::vector<HostSlots> find_slots(const LaunchArguments& options) {
  const bool given = !options.hostfile.empty();
  const std::string path = given ? options.hostfile : kDefaultHostfile;
  if (!given && !std::filesystem::exists(path)) {
    return local_slots(options.selection, usable_processors());
  }
  const files::InputFile file = files::InputFile::open(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return select_slots(parse_hostfile(text, path), options.selection);
}

// A folder for this job's heartbeat files, removed with its contents.
class HeartbeatFolder {
 public:
  HeartbeatFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "zinc-launch-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw IoError("create", name, -1, errno);
    path_ = name;
  }
  ~HeartbeatFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  HeartbeatFolder(const HeartbeatFolder&) = delete;
  HeartbeatFolder& operator=(const HeartbeatFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::atomic<pid_t> job{0};
std::atomic<int64_t> first_signal_ms{0};  // 0: there was none
static_assert(std::atomic<pid_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "a signal handler may not take a lock");

// mpirun kills ranks two seconds after a TERM, but passes USR1 on and lets them finish. Who asks
// again, kPatience after the first time, does not want to wait.
void pass_on(int) {
  const pid_t process = job.load();
  if (process <= 0) return;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_ms = 1000 * int64_t{now.tv_sec} + now.tv_nsec / 1'000'000 + 1;
  int64_t first = 0;
  if (first_signal_ms.compare_exchange_strong(first, now_ms)) {
    ::kill(process, SIGUSR1);
  } else if (now_ms - first >= std::chrono::milliseconds(kPatience).count()) {
    ::kill(process, SIGTERM);
  }
}

std::vector<int> signals_to_pass_on() {
  std::vector<int> numbers = {SIGTERM, SIGINT, SIGUSR1};
  if (!is_ignored(SIGHUP)) numbers.push_back(SIGHUP);
  return numbers;
}

// Becomes mpirun, in a separate process group: a Ctrl-C of the terminal reaches zinc launch alone.
[[noreturn]] void become(char* const* words, const sigset_t& mask, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kInternal);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(words[0], words);
  std::perror(words[0]);
  ::_exit(127);
}

// The exit code of the command, 128 + n where signal n ended it.
int run_job(std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  // No signal may arrive before there is a process to pass it on to.
  sigset_t ours;
  sigset_t before;
  sigemptyset(&ours);
  const std::vector<int> passed_on = signals_to_pass_on();
  for (const int number : passed_on) sigaddset(&ours, number);
  ::sigprocmask(SIG_BLOCK, &ours, &before);
  struct sigaction action {};
  action.sa_handler = pass_on;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : passed_on) ::sigaction(number, &action, nullptr);
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  if (process < 0) throw IoError("start", words.front(), -1, errno);
  if (process == 0) {
    for (const int number : passed_on) ::signal(number, SIG_DFL);
    become(pointers.data(), before, parent);
  }
  job = process;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  job = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The three lines of a heartbeat file in one line; empty: the rank left none.
std::string where_it_was(const std::string& folder, int rank) {
  std::string text = comm::read_heartbeat(folder, rank);
  while (text.ends_with('\n')) text.pop_back();
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string("; ") : std::string(1, c);
  return line;
}

// Ranks that ended before they joined the job, and programs that keep no heartbeats, leave none.
std::string where_ranks_were(const std::string& folder, int num_ranks) {
  std::string table;
  bool any = false;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::string line = where_it_was(folder, rank);
    any = any || !line.empty();
    table += "\n  " + (line.empty() ? fmt::format("rank {}: left no heartbeat", rank) : line);
  }
  return any ? "; where its ranks were:" + table : "; the lines above say why";
}

int launch(LaunchArguments options) {
  const std::vector<HostSlots> hosts = find_slots(options);
  options.mpirun.as_root = ::geteuid() == 0;
  if (options.dry_run) {
    options.mpirun.heartbeat_directory = options.heartbeats;
    fmt::print("{}\n", shell_text(mpirun_words(hosts, options.mpirun)));
    return kDone;
  }
  std::optional<HeartbeatFolder> own;
  if (options.heartbeats.empty()) options.heartbeats = own.emplace().path();
  options.mpirun.heartbeat_directory = options.heartbeats;
  int num_ranks = 0;
  for (const HostSlots& host : hosts) num_ranks += static_cast<int>(host.slots.size());
  const int code = run_job(mpirun_words(hosts, options.mpirun));
  if (code == kDone) return code;
  std::fflush(stdout);
  fmt::print(stderr, "zinc launch: the job ended with code {}{}\n", code,
             where_ranks_were(options.heartbeats, num_ranks));
  return code;
}

}  // namespace

void add_launch_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<LaunchArguments>();
  CLI::App* verb = app.add_subcommand("launch", "Start a program's ranks on hosts, by mpirun");
  verb->prefix_command();
  HostSelection& selection = options->selection;
  verb->add_option(
      "-H,--hostfile", options->hostfile,
      "Lines NAME slots=K (default: /job/hostfile where it exists, else this machine)");
  verb->add_option("-i,--include", selection.include,
                   "NAME[:SLOT[,SLOT...]][@NAME...]: these hosts and slots only");
  verb->add_option("-e,--exclude", selection.exclude, "The same form: all but these");
  verb->add_option("--num_nodes", selection.num_nodes, "The first hosts")
      ->check(CLI::PositiveNumber);
  verb->add_option("--num_gpus,--num_accelerators,--ranks", selection.num_gpus,
                   "Ranks of each host: its first slots; of this machine as many as are asked for")
      ->check(CLI::PositiveNumber);
  verb->add_option("--master_port", options->mpirun.master_port,
                   "MASTER_PORT of the ranks (default 29500); MPI needs none")
      ->check(CLI::Range(1, 65535));
  verb->add_option("--mpirun", options->mpirun.mpirun, "The mpirun to use");
  verb->add_option("--heartbeats", options->heartbeats,
                   "Folder for a heartbeat file per rank, on a file system that all hosts share");
  verb->add_flag("--dry-run", options->dry_run, "Print the mpirun command and end");
  verb->footer(
      "The program and its arguments follow the options: zinc launch --num_gpus 2 zinc train ...");
  // CLI11 hands the words behind a "--" to the program's own parser.
  verb->preparse_callback([&app](size_t) { app.allow_extras(); });
  verb->callback([options, verb, &app, &action] {
    auto& program = options->mpirun.program;
    program = verb->remaining();
    std::vector<std::string> behind_dashes = app.remaining();
    if (program.empty()) {
      program = std::move(behind_dashes);
    } else if (!behind_dashes.empty()) {
      throw CLI::ExtrasError("zinc", behind_dashes);
    }
    if (program.empty()) throw CLI::RequiredError("a program to start");
    if (program.front().starts_with("-")) {
      throw CLI::ExtrasError("zinc launch", {program.front()});
    }
    action = [options] { return launch(*options); };
  });
}

}  // namespace zinc::apps
