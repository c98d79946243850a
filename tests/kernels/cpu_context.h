// tests/kernels/cpu_context.h: a current context for kernels that take workspace.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "core/context.h"
#include "tests/kernels/host_array.h"

namespace zinc::test {

// A CPU context of `num_threads` threads, made current for its lifetime; where the tests run on a
// GPU also one of that, and the one of device() is current. Freed and fresh memory is poisoned, so
// a kernel that reads workspace it has not written gives NaN.
class CpuContext {
 public:
  explicit CpuContext(int num_threads = 2) : before_(innermost_), cpu_(options(num_threads, kCpu)) {
    if (runs_on_cuda()) gpu_.emplace(options(num_threads, device_for(DType::f32)));
    innermost_ = this;
    scope_.emplace(*current_for(device()));
  }
  ~CpuContext() {
    if (runs_on_cuda()) test_stream()->synchronize();
    innermost_ = before_;
  }
  CpuContext(const CpuContext&) = delete;
  CpuContext& operator=(const CpuContext&) = delete;

  // Null where no CpuContext is there.
  static Context* current_for(const Device& device) {
    if (innermost_ == nullptr) return nullptr;
    return device.is_cuda() ? &*innermost_->gpu_ : &innermost_->cpu_;
  }
  Context& operator*() { return *current_for(device()); }
  Context* operator->() { return current_for(device()); }
  // A stream beside stream().
  StreamRef other_stream() {
    return runs_on_cuda() ? TestGpu::current()->other_stream() : cpu_.stream(StreamRole::gather);
  }
  StreamRef stream() { return runs_on_cuda() ? test_stream() : cpu_.compute(); }

 private:
  static ContextOptions options(int num_threads, Device device) {
    return {.device = device, .num_threads = num_threads, .memory = {.poison = true}};
  }
  static inline CpuContext* innermost_ = nullptr;

  CpuContext* before_;
  Context cpu_;
  std::optional<Context> gpu_;
  std::optional<ContextScope> scope_;
};

// `make(stream)` returns the same bytes under contexts of 1, 2 and 4 threads, and twice in a row;
// on a CUDA device in `num_schedules` schedules.
inline bool same_bits_for_contexts(
    const std::function<std::vector<HostArray>(StreamRef stream)>& make, int num_schedules = 4) {
  constexpr int kThreads[] = {1, 2, 4, 4};
  std::vector<HostArray> first;
  const int on_cuda = std::min(num_schedules, kNumSchedules);
  for (int run = 0; run < (runs_on_cuda() ? on_cuda : 4); ++run) {
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
