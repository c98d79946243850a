#include "tests/comm/mpi/fault_ranks.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "tests/comm/rank_data.h"
#include "tests/comm/rank_errors.h"

namespace zinc::comm::testing {
namespace {

using std::chrono::milliseconds;

// A deadline that a working rank does not miss.
constexpr milliseconds kShort{1500};
constexpr milliseconds kLong{60'000};

void sleep_for(milliseconds time) { std::this_thread::sleep_for(time); }

// Files in a folder in which the ranks of a job tell each other how far they are.
class Lines {
 public:
  explicit Lines(std::string folder) : folder_(std::move(folder)) {}

  void say(int rank, std::string text) const {
    std::ranges::replace(text, '\n', ' ');
    std::printf("RANK %d: %s\n", rank, text.c_str());
    std::fflush(stdout);
    std::ofstream(path(rank)) << "said";
  }
  // Returns when these ranks have printed their lines, or cannot do so any more.
  void await_those_of(const std::vector<int>& ranks) const {
    const auto latest = std::chrono::steady_clock::now() + kLong / 2;
    while (!std::ranges::all_of(ranks, [&](int r) { return std::filesystem::exists(path(r)); }) &&
           std::chrono::steady_clock::now() < latest) {
      sleep_for(milliseconds(5));
    }
  }

 private:
  std::string path(int rank) const { return str(folder_, "/said_", rank); }

  std::string folder_;
};

std::vector<int64_t> processes_of(const Rank& rank) {
  std::vector<int64_t> mine{::getpid()};
  std::vector<int64_t> all(static_cast<size_t>(rank.size()));
  rank.group.all_gather({view_of(mine), view_of(all)}, rank.gather()).wait();
  return all;
}

// Rank 2 stops; rank 0 has it continue after rank 1 has given up, too.
void stop(const Rank& rank, const Lines& lines, bool in_the_middle) {
  const auto processes = processes_of(rank);
  rank.group.set_deadline(kShort);
  const auto last = static_cast<::pid_t>(processes[2]);
  if (rank.rank() == 2 && !in_the_middle) ::kill(last, SIGSTOP);
  std::thread stopper;
  if (rank.rank() == 2 && in_the_middle) {
    stopper = std::thread([last] {
      sleep_for(milliseconds(30));
      ::kill(last, SIGSTOP);
    });
  }
  try {
    while (true) all_gather(rank, 500'000);
  } catch (const CommError&) {
    if (rank.rank() == 0) {
      lines.await_those_of({1});
      ::kill(last, SIGCONT);
    }
    if (stopper.joinable()) stopper.join();
    throw;
  }
}

// As run_program() ends a rank. Rank `first` has its error before the others have theirs, and takes
// its time to end the job.
void end_as_a_program(const std::exception_ptr& error, const Rank& rank, const Lines& lines,
                      int first) {
  const Failure failure = zinc::describe(error);
  const bool is_first = rank.rank() == first;
  if (!is_first) lines.await_those_of({first});
  let_others_speak(error);
  lines.say(rank.rank(), failure.message);
  if (is_first) sleep_for(milliseconds(200));
  abort_job(failure.code);
}

struct Trouble {
  milliseconds deadline;
  std::function<void(const Rank&)> happen;
};

std::map<std::string, Trouble> troubles(const Lines& lines) {
  return {
      {"none", {kLong, [](const Rank& rank) { all_gather(rank, 10); }}},
      {"sleep",
       {kLong,
        [lines](const Rank& rank) {
          all_gather(rank, 10);
          rank.group.set_deadline(kShort);
          if (rank.rank() == 1) lines.await_those_of({0, 2});
          all_gather(rank, 10);
        }}},
      {"sleep_within_the_deadline",
       {milliseconds(8000),
        [](const Rank& rank) {
          for (int k = 0; k < 3; ++k) {
            if (rank.rank() == k) sleep_for(milliseconds(1600));
            all_gather(rank, 1000);
          }
        }}},
      {"stop", {kLong, [lines](const Rank& rank) { stop(rank, lines, false); }}},
      {"stop_in_the_middle", {kLong, [lines](const Rank& rank) { stop(rank, lines, true); }}},
      {"abort",
       {kLong,
        [](const Rank& rank) {
          if (rank.rank() == 0) {
            sleep_for(milliseconds(200));
            rank.group.abort("the operator said so");
          }
          all_gather(rank, 10);
        }}},
      {"abort_in_a_group",
       {kLong,
        [](const Rank& rank) {
          const auto pair = rank.group.split(rank.rank() < 2 ? 0 : 1, 0);
          if (rank.rank() == 0) {
            sleep_for(milliseconds(200));
            pair->abort("enough");
          }
          all_gather(rank.rank() == 1 ? Rank{*pair, rank.context} : rank, 10);
        }}},
      {"mismatch",
       {kLong,
        [](const Rank& rank) {
          all_gather(rank, 10);
          all_gather(rank, rank.rank() == 1 ? 300'000 : 200'000);
        }}},
      {"wrong_count", {kLong, [](const Rank& rank) { exchange_with_a_wrong_count(rank, 4); }}},
      {"throw",
       {kLong,
        [](const Rank& rank) {
          if (rank.rank() == 1) throw DataError("shard 3 is broken");
          all_gather(rank, 10);
        }}},
      {"kill",
       {kLong,
        [](const Rank& rank) {
          if (rank.rank() == 1) ::kill(::getpid(), SIGKILL);
          all_gather(rank, 10);
        }}},
      {"abort_job",
       {kLong,
        [](const Rank& rank) {
          if (rank.rank() == 2) abort_job(71);
          all_gather(rank, 10);
        }}},
      // As run_program() ends a rank.
      {"error_of_one",
       {kLong,
        [lines](const Rank& rank) {
          const bool fails = rank.rank() == 2;
          end_as_a_program(fails ? std::make_exception_ptr(ConfigError("one failed"))
                                 : std::make_exception_ptr(PeerFailed("work", 2)),
                           rank, lines, 2);
        }}},
      {"error_of_all",
       {kLong,
        [lines](const Rank& rank) {
          end_as_a_program(std::make_exception_ptr(DataError("all failed")), rank, lines, 0);
        }}},
  };
}

}  // namespace

int run_fault_rank(const std::string& trouble, const std::string& way, const std::string& folder) {
  const Lines lines(folder);
  const Trouble chosen = troubles(lines).at(trouble);
  int rank = -1;
  int size = 0;
  // mpirun kills the others as soon as one rank returns a code other than 0.
  const auto end_after_all_lines = [&](const std::exception& error, int code) {
    lines.say(rank, error.what());
    std::vector<int> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    lines.await_those_of(all);
    return code;
  };
  try {
    World world =
        connect({.num_threads = 1, .deadline = chosen.deadline, .shared_memory = way == "shared"});
    rank = world.rank();
    size = world.size();
    chosen.happen({.group = world.communicator(), .context = world.context()});
  } catch (const CommError& error) {
    return end_after_all_lines(error, 72);
  } catch (const DataError& error) {
    return end_after_all_lines(error, 65);
  }
  lines.say(rank, "fine");
  return 0;
}

}  // namespace zinc::comm::testing
