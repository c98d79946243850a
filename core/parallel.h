// core/parallel.h: loops over OpenMP threads whose results do not depend on the thread count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>

#include <omp.h>

namespace zinc {

// Calls body(begin, end) for every chunk [k * grain, (k + 1) * grain) of [0, n). Chunk boundaries
// depend on n and grain alone; which thread runs a chunk does not matter as long as chunks do not
// write to each other's memory. What the lowest chunk that failed threw is thrown again; higher
// chunks may have run. Nested calls run serially.
// The thread count is the calling thread's OpenMP setting, which a ContextScope sets.
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  const int64_t step = std::max<int64_t>(grain, 1);
  const int64_t chunks = n <= 0 ? 0 : (n - 1) / step + 1;
  if (chunks <= 1 || omp_get_max_threads() == 1 || omp_in_parallel() != 0) {
    for (int64_t k = 0; k < chunks; ++k) body(k * step, k + 1 == chunks ? n : (k + 1) * step);
    return;
  }
  std::exception_ptr failure;
  int64_t failed_chunk = chunks;
#pragma omp parallel for schedule(static)
  for (int64_t k = 0; k < chunks; ++k) {
    try {
      body(k * step, k + 1 == chunks ? n : (k + 1) * step);
    } catch (...) {
#pragma omp critical(zinc_parallel_for)
      if (k < failed_chunk) {
        failed_chunk = k;
        failure = std::current_exception();
      }
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace zinc
