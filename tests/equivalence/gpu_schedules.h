// tests/equivalence/gpu_schedules.h: in which orders the streams of a GPU run what no event orders.
#pragma once

#include <cstdint>

#include "core/device.h"
#if defined(ZINC_CUDA_EMULATED)
#include "tests/emulator/runtime.h"
#endif

namespace zinc::test {

inline constexpr Device kGpu{.kind = DeviceKind::cuda};

// How streams run ahead of each other; on a GPU there is no choice.
struct Schedule {
  const char* name;
#if defined(ZINC_CUDA_EMULATED)
  ShuffledExecutor::Order order;
#endif
  uint64_t seed;
};
#if defined(ZINC_CUDA_EMULATED)
using Order = ShuffledExecutor::Order;
inline constexpr Schedule kSchedules[] = {{"earliest", Order::earliest, 0},
                                          {"latest", Order::latest, 0},
                                          {"random", Order::random, 1},
                                          {"mixed", Order::by_seed, 2}};
inline void choose(const Schedule& schedule) {
  emulator::set_default_schedule(schedule.seed, schedule.order);
}
#else
inline constexpr Schedule kSchedules[] = {{"first", 0}, {"second", 1}};
inline void choose(const Schedule&) {}
#endif

}  // namespace zinc::test
