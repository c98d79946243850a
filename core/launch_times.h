// core/launch_times.h: the time of every kernel of a GPU, by events around its launch, where no
// profiler is at hand.
//
// An event before and one behind each launch cost a few microseconds on the device, and the gap
// between two kernels counts as the second one's: short kernels look longer than they are. Not for
// launches that are recorded for a CUDA graph.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/context.h"
#include "core/cuda_backend.h"

namespace zinc {

struct KernelTime {
  std::string name;
  int64_t launches = 0;
  double seconds = 0.0;  // sum over the launches
};

class LaunchTimes {
 public:
  // The times of the current context; null without a context, and where its launches are not timed.
  static LaunchTimes* current();

  void turn_on() { on_ = true; }
  // The times of the launches since the last call, the longest kernel first. Waits for the
  // launches.
  std::vector<KernelTime> take();
  void start(StreamRef stream);
  void stop(std::string name, StreamRef stream);

 private:
  bool on_ = false;
  std::vector<std::unique_ptr<CudaTimer>> idle_;
  std::vector<std::pair<std::string, std::unique_ptr<CudaTimer>>> launched_;
  std::unique_ptr<CudaTimer> running_;
};

// "Total Time (ns),Instances,Name" and a line for each, as Nsight Systems' summary of kernels.
std::string csv_of(const std::vector<KernelTime>& times);

// Calls `queue`, which queues one kernel on `stream`; `name` gives the kernel's name where it is
// asked for.
template <class Name, class Queue>
void timed_launch(StreamRef stream, const Name& name, const Queue& queue) {
  LaunchTimes* times = LaunchTimes::current();
  if (times == nullptr) return queue();
  times->start(stream);
  queue();
  times->stop(name(), stream);
}

}  // namespace zinc
