#include "apps/machine.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <sstream>

#include "comm/cpu_share.h"
#include "core/error.h"
#include "core/processors.h"

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

const char* omp_num_threads() {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  return threads == nullptr ? "" : threads;
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
  machine.cores = usable_processors();
  machine.memory_bytes = std::min(kibibytes(field("/proc/meminfo", "MemTotal")),
                                  memory_quota().value_or(std::numeric_limits<int64_t>::max()));
  machine.available_bytes =
      std::min(kibibytes(field("/proc/meminfo", "MemAvailable")), machine.memory_bytes);
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
  const int said = comm::threads_in(omp_num_threads());
  return said > 0 ? said : std::max(1, inspect_machine().cores / std::max(1, ranks));
}

std::string threads_note() {
  const std::string threads = omp_num_threads();
  if (threads.empty()) return "";
  return str("note: OMP_NUM_THREADS=", threads,
             " says how many threads a rank has where no flag or key does");
}

std::string threads_note_once() {
  std::string note = threads_note();
  if (note.empty()) return note;
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string cache = variable("XDG_CACHE_HOME");
  if (cache.empty() && !variable("HOME").empty()) cache = variable("HOME") + "/.cache";
  if (cache.empty()) return note;
  const std::string path = cache + "/zinc/said-threads";
  std::string said;
  std::ifstream before(path);
  if (std::getline(before, said) && said == note) return "";
  std::error_code ignored;
  std::filesystem::create_directories(cache + "/zinc", ignored);
  std::ofstream(path) << note << '\n';
  return note + " (said once)";
}

}  // namespace zinc::apps
