// core/parallel.h: loops over threads whose results do not depend on the thread count.
//
// Every thread that calls parallel_for() has its own team: the thread itself, and helpers that
// start at its first loop and end with the thread. See Note [Thread teams].
#pragma once

#include <algorithm>
#include <cstdint>

namespace zinc {

// Threads of the calling thread's loops, itself included. At first usable_processors(); a
// ContextScope sets its context's. Inside a loop: the number of the thread that called the loop.
int num_parallel_threads();
void set_num_parallel_threads(int count);  // at least 1

// Index of the calling thread in the loop that it runs, 0 <= index < num_parallel_threads(). No two
// threads of a loop have the same. Outside of a loop 0.
int parallel_thread();
bool in_parallel_loop();

namespace detail {

// Runs the chunks [first, last) of a loop.
using RunChunks = void (*)(void* body, int64_t first, int64_t last);

// Runs all chunks of [0, chunks) on the calling thread's team.
void run_on_team(int64_t chunks, RunChunks run, void* body);

}  // namespace detail

// Calls body(begin, end) for every chunk [k * grain, (k + 1) * grain) of [0, n). Chunk boundaries
// depend on n and grain alone; which thread runs a chunk does not matter as long as chunks do not
// write to each other's memory. The exception of the lowest chunk that failed is thrown again;
// higher chunks may have run. Nested calls run serially.
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  const int64_t step = std::max<int64_t>(grain, 1);
  const int64_t chunks = n <= 0 ? 0 : (n - 1) / step + 1;
  const auto run = [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k) {
      body(k * step, k + 1 == chunks ? n : (k + 1) * step);
    }
  };
  if (chunks <= 1 || num_parallel_threads() == 1 || in_parallel_loop()) return run(0, chunks);
  using Run = decltype(run);
  detail::run_on_team(
      chunks,
      [](void* it, int64_t first, int64_t last) { (*static_cast<const Run*>(it))(first, last); },
      const_cast<void*>(static_cast<const void*>(&run)));
}

}  // namespace zinc
