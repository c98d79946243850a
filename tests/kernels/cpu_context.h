// tests/kernels/cpu_context.h: a current context for kernels that take workspace.
#pragma once

#include <functional>
#include <vector>

#include "core/context.h"
#include "tests/kernels/host_array.h"

namespace zinc::test {

// A CPU context of `num_threads` threads, made current for its lifetime. Freed and fresh memory is
// poisoned, so a kernel that reads workspace it has not written gives NaN.
class CpuContext {
 public:
  explicit CpuContext(int num_threads = 2)
      : context_(ContextOptions{.num_threads = num_threads, .memory = {.poison = true}}),
        scope_(context_) {}

  Context& operator*() { return context_; }
  Context* operator->() { return &context_; }
  StreamRef stream() { return context_.compute(); }

 private:
  Context context_;
  ContextScope scope_;
};

// `make(stream)` returns the same bytes under contexts of 1, 2 and 4 threads, and twice in a row;
// on a CUDA device in `num_schedules` schedules.
inline bool same_bits_for_contexts(
    const std::function<std::vector<HostArray>(StreamRef stream)>& make, int num_schedules = 4) {
  constexpr int kThreads[] = {1, 2, 4, 4};
  std::vector<HostArray> first;
  for (int run = 0; run < (runs_on_cuda() ? num_schedules : 4); ++run) {
    CpuContext context(kThreads[run % 4]);
    set_schedule_seed(static_cast<uint64_t>(run));
    std::vector<HostArray> now = make(context.stream());
    if (first.empty()) first = now;
    for (size_t i = 0; i < now.size(); ++i) {
      if (!same_bits(first[i], now[i])) return false;
    }
  }
  return true;
}

}  // namespace zinc::test
