#include "tests/comm/mpi/fault_ranks.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm/world.h"
#include "core/error.h"
#include "tests/comm/rank_data.h"
#include "tests/comm/rank_errors.h"

namespace zinc::comm::testing {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort{300};
constexpr milliseconds kLong{60'000};

void sleep_for(milliseconds time) { std::this_thread::sleep_for(time); }

std::vector<int64_t> processes_of(const Rank& rank) {
  std::vector<int64_t> mine{::getpid()};
  std::vector<int64_t> all(static_cast<size_t>(rank.size()));
  rank.group.all_gather({view_of(mine), view_of(all)}, rank.gather()).wait();
  return all;
}

// Rank 2 stops; rank 0 has it continue after everybody has given up.
void stop(const Rank& rank, bool in_the_middle) {
  const auto processes = processes_of(rank);
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
      sleep_for(milliseconds(500));
      ::kill(last, SIGCONT);
    }
    if (stopper.joinable()) stopper.join();
    throw;
  }
}

struct Trouble {
  milliseconds deadline;
  std::function<void(const Rank&)> happen;
};

std::map<std::string, Trouble> troubles() {
  return {
      {"none", {kLong, [](const Rank& rank) { all_gather(rank, 10); }}},
      {"sleep",
       {kShort,
        [](const Rank& rank) {
          all_gather(rank, 10);
          if (rank.rank() == 1) sleep_for(milliseconds(1500));
          all_gather(rank, 10);
        }}},
      {"sleep_within_the_deadline",
       {milliseconds(3000),
        [](const Rank& rank) {
          for (int k = 0; k < 3; ++k) {
            if (rank.rank() == k) sleep_for(milliseconds(600));
            all_gather(rank, 1000);
          }
        }}},
      {"stop", {kShort, [](const Rank& rank) { stop(rank, false); }}},
      {"stop_in_the_middle", {kShort, [](const Rank& rank) { stop(rank, true); }}},
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
  };
}

// mpirun kills the others as soon as one rank returns a code other than 0.
int exit_code_after_the_others_spoke(int code) {
  sleep_for(milliseconds(1200));
  return code;
}

void say(int rank, std::string text) {
  std::ranges::replace(text, '\n', ' ');
  std::printf("RANK %d: %s\n", rank, text.c_str());
  std::fflush(stdout);
}

}  // namespace

int run_fault_rank(const std::string& trouble, const std::string& way) {
  const Trouble chosen = troubles().at(trouble);
  int rank = -1;
  try {
    World world =
        connect({.num_threads = 1, .deadline = chosen.deadline, .shared_memory = way == "shared"});
    rank = world.rank();
    chosen.happen({.group = world.communicator(), .context = world.context()});
  } catch (const CommError& error) {
    say(rank, error.what());
    return exit_code_after_the_others_spoke(72);
  } catch (const DataError& error) {
    say(rank, error.what());
    return exit_code_after_the_others_spoke(65);
  }
  say(rank, "fine");
  return 0;
}

}  // namespace zinc::comm::testing
