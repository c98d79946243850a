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

// `make(stream)` returns the same bytes under contexts of 1, 2 and 4 threads, and twice in a row; on
// a CUDA device in as many schedules.
inline bool same_bits_for_contexts(
    const std::function<std::vector<HostArray>(StreamRef stream)>& make) {
  std::vector<HostArray> first;
  uint64_t seed = 0;
  for (const int num_threads : {1, 2, 4, 4}) {
    CpuContext context(num_threads);
    set_schedule_seed(seed++);
    std::vector<HostArray> now = make(context.stream());
    if (first.empty()) first = now;
    for (size_t i = 0; i < now.size(); ++i) {
      if (!same_bits(first[i], now[i])) return false;
    }
  }
  return true;
}

}  // namespace zinc::test
