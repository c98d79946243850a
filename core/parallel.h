// core/parallel.h: loops over OpenMP threads whose results do not depend on the thread count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>

#include <omp.h>
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace zinc {
namespace detail {

// The thread sanitizer does not see into the OpenMP runtime: it is told of the start and the end
// of a parallel region, and does not look at the code that the compiler makes for it.
#if defined(__SANITIZE_THREAD__)
#define ZINC_PARALLEL_REGION __attribute__((no_sanitize("thread")))
inline void region_release(void* point) { __tsan_release(point); }
inline void region_acquire(void* point) { __tsan_acquire(point); }
#else
#define ZINC_PARALLEL_REGION
inline void region_release(void*) {}
inline void region_acquire(void*) {}
#endif

}  // namespace detail

// Calls body(begin, end) for every chunk [k * grain, (k + 1) * grain) of [0, n). Chunk boundaries
// depend on n and grain alone; which thread runs a chunk does not matter as long as chunks do not
// write to each other's memory. What the lowest chunk that failed threw is thrown again; higher
// chunks may have run. Nested calls run serially.
// The thread count is the calling thread's OpenMP setting, which a ContextScope sets.
template <class Body>
ZINC_PARALLEL_REGION void parallel_for(int64_t n, int64_t grain, Body&& body) {
  const int64_t step = std::max<int64_t>(grain, 1);
  const int64_t chunks = n <= 0 ? 0 : (n - 1) / step + 1;
  if (chunks <= 1 || omp_get_max_threads() == 1 || omp_in_parallel() != 0) {
    for (int64_t k = 0; k < chunks; ++k) body(k * step, k + 1 == chunks ? n : (k + 1) * step);
    return;
  }
  std::exception_ptr failure;
  int64_t failed_chunk = chunks;
  char start = 0;  // of these only the addresses are used
  char end = 0;
  detail::region_release(&start);
#pragma omp parallel for schedule(static)
  for (int64_t k = 0; k < chunks; ++k) {
    detail::region_acquire(&start);
    try {
      body(k * step, k + 1 == chunks ? n : (k + 1) * step);
    } catch (...) {
#pragma omp critical(zinc_parallel_for)
      {
        detail::region_acquire(&failure);
        if (k < failed_chunk) {
          failed_chunk = k;
          failure = std::current_exception();
        }
        detail::region_release(&failure);
      }
    }
    detail::region_release(&end);
  }
  detail::region_acquire(&end);
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace zinc
