#include "kernels/cpu/past_caches.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/past_caches.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void copy_streaming(uint8_t* to, const uint8_t* from, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to)) & (width - 1);
  int64_t i = misaligned == 0 ? 0 : std::min(width - misaligned, bytes);
  if (i > 0) std::memcpy(to, from, static_cast<size_t>(i));
  for (; i + width <= bytes; i += width) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  if (i < bytes) std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}

void copy_runs_streaming(uint8_t* to, int64_t to_step, const uint8_t* from, int64_t from_step,
                         int64_t count, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  const auto start = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to));
  if (((start | to_step | bytes) & (width - 1)) != 0) {
    for (int64_t r = 0; r < count; ++r) {
      copy_streaming(to + r * to_step, from + r * from_step, bytes);
    }
    return;
  }
  // Short runs of whole vectors: a call and its tests for each would take as long as the memory.
  for (int64_t r = 0; r < count; ++r, to += to_step, from += from_step) {
    for (int64_t i = 0; i < bytes; i += width) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(copy_streaming);
HWY_EXPORT(copy_runs_streaming);

void copy_bytes(void* to, const void* from, int64_t bytes, bool past_caches) {
  if (!past_caches) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  HWY_DYNAMIC_DISPATCH(copy_streaming)
  (static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), bytes);
}

void copy_runs(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t count,
               int64_t bytes, bool past_caches) {
  auto* target = static_cast<uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
  if (past_caches) {
    HWY_DYNAMIC_DISPATCH(copy_runs_streaming)(target, to_step, source, from_step, count, bytes);
    return;
  }
  for (int64_t r = 0; r < count; ++r) {
    std::memcpy(target + r * to_step, source + r * from_step, static_cast<size_t>(bytes));
  }
}

void flush_past_caches() { hwy::FlushStream(); }

}  // namespace zinc::kernels::cpu
#endif
