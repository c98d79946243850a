#include "comm/cpu_share.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>

#include "core/error.h"
#include "core/processors.h"

namespace zinc::comm {
namespace {

// A number in the kernel's description of a processor; 0 where there is none.
int topology_number(int cpu, const char* name) {
  std::ifstream file(str("/sys/devices/system/cpu/cpu", cpu, "/topology/", name));
  int number = 0;
  return file >> number ? number : 0;
}

void set_affinity(const std::vector<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &mask);
  (void)::sched_setaffinity(0, sizeof mask, &mask);  // refused: a placement is only a wish
}

std::vector<int> affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus = affinity();
  if (cpus.empty()) {  // more processors than the mask holds
    const auto count = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    for (int cpu = 0; cpu < std::min(count, CPU_SETSIZE); ++cpu) cpus.push_back(cpu);
    return cpus;
  }
  std::vector<std::tuple<int, int, int>> places;
  for (const int cpu : cpus) {
    places.emplace_back(topology_number(cpu, "physical_package_id"),
                        topology_number(cpu, "core_id"), cpu);
  }
  std::ranges::sort(places);
  std::ranges::transform(places, cpus.begin(),
                         [](const auto& place) { return std::get<2>(place); });
  return cpus;
}

CpuShare share_of(const std::vector<int>& cpus, int local_rank, int local_size) {
  require(!cpus.empty() && local_rank >= 0 && local_rank < local_size, "share_of: rank ",
          local_rank, " of ", local_size, " on ", cpus.size(), " processors");
  const size_t count = cpus.size();
  const auto rank = static_cast<size_t>(local_rank);
  const auto ranks = static_cast<size_t>(local_size);
  if (ranks > count) return {.cpus = {cpus[rank % count]}, .exclusive = false};
  const auto begin = cpus.begin() + static_cast<std::ptrdiff_t>(rank * count / ranks);
  const auto end = cpus.begin() + static_cast<std::ptrdiff_t>((rank + 1) * count / ranks);
  return {.cpus = {begin, end}, .exclusive = true};
}

int threads_of(int cpus, int ranks) {
  const std::optional<double> quota = cpu_quota();
  if (!quota) return std::max(1, cpus);
  return std::clamp(static_cast<int>(std::ceil(*quota)) / std::max(1, ranks), 1, std::max(1, cpus));
}

int threads_in(std::string_view omp_num_threads) {
  if (omp_num_threads.empty()) return 0;
  const std::string_view first = omp_num_threads.substr(0, omp_num_threads.find(','));
  int count = 0;
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), count);
  require(error == std::errc() && end == first.data() + first.size() && count > 0,
          "OMP_NUM_THREADS is '", omp_num_threads,
          "', which is no number of threads: unset it, or set it to 1 or more");
  return count;
}

CpuBinding::CpuBinding(const std::vector<int>& cpus) : before_(affinity()) { set_affinity(cpus); }

CpuBinding::~CpuBinding() {
  if (!before_.empty()) set_affinity(before_);
}

}  // namespace zinc::comm
