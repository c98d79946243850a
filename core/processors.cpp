#include "core/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

namespace zinc {
namespace {

namespace fs = std::filesystem;

// A group limited by less than this is not limited: version 1 writes a number of that size for
// "no limit".
constexpr int64_t kNoMemoryLimit = int64_t{1} << 60;

struct Hierarchy {
  fs::path mount;   // folder of the hierarchy's files
  fs::path group;   // this process's group, below `mount`
  bool is_unified;  // version 2
};

bool lists(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

// The hierarchies of /proc/self/cgroup that can limit `controller`.
std::vector<Hierarchy> hierarchies(const fs::path& root, const std::string& controller) {
  std::vector<Hierarchy> found;
  std::ifstream file(root / "proc/self/cgroup");
  const fs::path mounts = root / "sys/fs/cgroup";
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = fs::path(line.substr(second + 1)).relative_path();
    if (controllers.empty()) {
      const fs::path beside = mounts / "unified";  // where both versions are mounted
      std::error_code ignored;
      found.push_back({fs::exists(beside, ignored) ? beside : mounts, group, true});
    } else if (lists(controllers, controller)) {
      std::error_code ignored;
      const fs::path together = mounts / controllers;  // "cpu,cpuacct"
      found.push_back(
          {fs::exists(together, ignored) ? together : mounts / controller, group, false});
    }
  }
  return found;
}

// The least value of the group and its ancestors. A container may see its own group as the root of
// the hierarchy and still be told the path on the host: folders that do not exist are passed over.
template <class Number>
std::optional<Number> least(const Hierarchy& at,
                            const std::function<std::optional<Number>(const fs::path&)>& limit) {
  std::optional<Number> result = limit(at.mount);
  fs::path folder = at.mount;
  for (const fs::path& name : at.group) {
    folder /= name;
    const std::optional<Number> here = limit(folder);
    if (here && (!result || *here < *result)) result = here;
  }
  return result;
}

std::optional<std::string> word_of(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return word;
}

std::optional<double> quota_over_period(std::istream& text) {
  double quota = 0, period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> unified_cpu_limit(const fs::path& folder) {
  std::ifstream file(folder / "cpu.max");  // "max 100000" where there is no limit
  return quota_over_period(file);
}

std::optional<double> legacy_cpu_limit(const fs::path& folder) {
  std::stringstream both(word_of(folder / "cpu.cfs_quota_us").value_or("-1") + " " +
                         word_of(folder / "cpu.cfs_period_us").value_or("0"));
  return quota_over_period(both);
}

std::optional<int64_t> memory_limit(const fs::path& folder, const char* name) {
  std::ifstream file(folder / name);
  int64_t bytes = 0;
  if (!(file >> bytes) || bytes >= kNoMemoryLimit) return std::nullopt;
  return bytes;
}

int processors_of_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> quota;
  for (const Hierarchy& at : hierarchies(root, "cpu")) {
    const std::optional<double> here =
        least<double>(at, at.is_unified ? unified_cpu_limit : legacy_cpu_limit);
    if (here && (!quota || *here < *quota)) quota = here;
  }
  return quota;
}

std::optional<int64_t> memory_quota(const fs::path& root) {
  std::optional<int64_t> quota;
  for (const Hierarchy& at : hierarchies(root, "memory")) {
    const char* name = at.is_unified ? "memory.max" : "memory.limit_in_bytes";
    const std::optional<int64_t> here =
        least<int64_t>(at, [&](const fs::path& folder) { return memory_limit(folder, name); });
    if (here && (!quota || *here < *quota)) quota = here;
  }
  return quota;
}

int usable_processors() {
  static const std::optional<double> quota = cpu_quota();
  const int processors = processors_of_affinity();
  return quota ? std::clamp(static_cast<int>(std::ceil(*quota)), 1, processors) : processors;
}

}  // namespace zinc
