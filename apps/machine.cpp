#include "apps/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <sstream>

#include "core/context.h"
#include "core/error.h"

namespace zinc::apps {
namespace {

// The value of "key : value" or "key: value", empty where there is none.
std::string field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

int64_t kibibytes(const std::string& text) {
  std::istringstream stream(text);
  int64_t value = 0;
  stream >> value;
  return value * 1024;
}

// The control group's limit (version 2, then 1); the largest number where there is none.
int64_t group_memory_limit() {
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    int64_t limit = 0;
    if (file >> limit) return limit;
  }
  return std::numeric_limits<int64_t>::max();
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

std::vector<std::string> known_isa() {
  std::istringstream stream(field("/proc/cpuinfo", "flags"));
  const std::set<std::string> flags{std::istream_iterator<std::string>(stream),
                                    std::istream_iterator<std::string>()};
  std::vector<std::string> known;
  for (const char* name : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni",
                           "avx512_bf16", "avx512_fp16", "amx_bf16"}) {
    if (flags.contains(name)) known.emplace_back(name);
  }
  return known;
}

}  // namespace

Machine inspect_machine() {
  Machine machine;
  machine.cpu_model = field("/proc/cpuinfo", "model name");
  machine.isa = known_isa();
  machine.cores = usable_cores();
  machine.memory_bytes =
      std::min(kibibytes(field("/proc/meminfo", "MemTotal")), group_memory_limit());
  machine.available_bytes = kibibytes(field("/proc/meminfo", "MemAvailable"));
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    machine.locked_memory_limit =
        limit.rlim_cur == RLIM_INFINITY ? -1 : static_cast<int64_t>(limit.rlim_cur);
  }
  utsname name{};
  if (uname(&name) == 0) machine.kernel = std::string(name.sysname) + " " + name.release;
  return machine;
}

int threads_per_rank(int ranks) {
  if (!threads_note().empty())
    return Context({.execution = ContextOptions::Execution::inline_all}).num_threads();
  return std::max(1, inspect_machine().cores / std::max(1, ranks));
}

std::string threads_note() {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads == nullptr || *threads == 0) return "";
  return str("note: OMP_NUM_THREADS=", threads,
             " says how many threads a rank has where no flag or key does");
}

}  // namespace zinc::apps
