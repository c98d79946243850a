// comm/cpu_share.h: which processors a rank may use beside the other ranks of its host.
#pragma once

#include <string_view>
#include <vector>

namespace zinc::comm {

// Processors that the calling thread may run on (its affinity, as launchers and containers set
// it), hardware threads of one core side by side, then by core and socket.
std::vector<int> allowed_cpus();

struct CpuShare {
  std::vector<int> cpus;   // at least one
  bool exclusive = false;  // no other rank of the division has one of them
};

// Rank `local_rank`'s piece of `cpus` divided among `local_size` ranks: contiguous, disjoint, sizes
// differing by at most one. With more ranks than processors, a rank gets one processor and shares
// it.
CpuShare share_of(const std::vector<int>& cpus, int local_rank, int local_size);

// Threads of a rank that has `cpus` processors and shares the control group's quota (cpu_quota())
// with `ranks` ranks: as many as processors, or fewer where the rank's part of the quota is
// smaller. At least 1.
int threads_of(int cpus, int ranks);

// The number in OMP_NUM_THREADS: "4", or the first of "4,2". 0 where the text is empty. Throws
// InvalidArgument if it is no number of threads.
int threads_in(std::string_view omp_num_threads);

// Binds the calling thread, and threads that it starts later, to `cpus` while the object lives. The
// same thread must destroy it. If the system refuses, the thread stays as it was.
class CpuBinding {
 public:
  explicit CpuBinding(const std::vector<int>& cpus);
  ~CpuBinding();
  CpuBinding(const CpuBinding&) = delete;
  CpuBinding& operator=(const CpuBinding&) = delete;

 private:
  std::vector<int> before_;
};

}  // namespace zinc::comm
