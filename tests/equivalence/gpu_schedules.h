// tests/equivalence/gpu_schedules.h: how a GPU's streams run ahead of each other; on a real one
// there is no choice.
#pragma once

#include <cstdint>

#if defined(ZINC_CUDA_EMULATED)
#include "tests/emulator/runtime.h"
#endif

namespace zinc {

struct Schedule {
  const char* name;
#if defined(ZINC_CUDA_EMULATED)
  ShuffledExecutor::Order order;
#endif
  uint64_t seed;
};
#if defined(ZINC_CUDA_EMULATED)
inline constexpr Schedule kSchedules[] = {{"earliest", ShuffledExecutor::Order::earliest, 0},
                                          {"latest", ShuffledExecutor::Order::latest, 0},
                                          {"random", ShuffledExecutor::Order::random, 1},
                                          {"mixed", ShuffledExecutor::Order::by_seed, 2}};
inline void choose(const Schedule& schedule) {
  emulator::set_default_schedule(schedule.seed, schedule.order);
}
#else
inline constexpr Schedule kSchedules[] = {{"first", 0}, {"second", 1}};
inline void choose(const Schedule&) {}
#endif

}  // namespace zinc
