// apps/machine.h: what this machine is, for `zinc report` and the head of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zinc::apps {

struct Machine {
  std::string cpu_model;
  std::vector<std::string> isa;  // the extensions that zinc's kernels use: "avx2", "avx512f", ...
  int cores = 0;                 // usable_processors()
  int64_t memory_bytes = 0;      // the smaller of the machine's and the control group's
  int64_t available_bytes = 0;
  int64_t locked_memory_limit = 0;  // RLIMIT_MEMLOCK, bytes; -1: unlimited
  std::string kernel;               // "Linux 6.1.0"
};

Machine inspect_machine();

// Threads of each of `ranks` ranks on this machine, if nothing else sets them: OMP_NUM_THREADS,
// else the cores divided among the ranks.
int threads_per_rank(int ranks);
// "note: ..." for the user where OMP_NUM_THREADS decides; else empty.
std::string threads_note();
// The note, unless this user has read it on this machine: ~/.cache/zinc/said-threads (or below
// XDG_CACHE_HOME) keeps the last one. Without such a folder it is said every time.
std::string threads_note_once();

}  // namespace zinc::apps
