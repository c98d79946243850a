// kernels/cpu/past_caches.h: decides which outputs are stored past the caches.
//
// A plain store first reads the line that it overwrites: a third of the traffic of a copy. A
// non-temporal store does not, but leaves nothing in a cache, which pays off only where the output
// is too large to stay there anyway. Values do not depend on the choice.
#pragma once

#include <cstdint>

#include "core/view.h"

namespace zinc::kernels::cpu {

// The last-level cache that the cores of one cluster share on today's servers is of this order.
inline constexpr int64_t kPastCachesBytes = int64_t{32} << 20;

inline bool past_caches(int64_t output_bytes) { return output_bytes >= kPastCachesBytes; }

// For one output of an op that also reads: in place, the line is in the cache already.
template <class... Inputs>
bool past_caches(const View& output, const Inputs&... inputs) {
  return past_caches(output.bytes()) && ((inputs.data() != output.data()) && ...);
}

// memcpy with the choice made by the caller, who calls flush_past_caches() on the same thread
// before others may read.
void copy_bytes(void* to, const void* from, int64_t bytes, bool past_caches);
// `count` runs of `bytes` bytes, with starts to_step and from_step bytes apart.
void copy_runs(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t count,
               int64_t bytes, bool past_caches);
void flush_past_caches();

// The turn of a thread of a loop whose turns each end with a flush: a flush waits until all that
// was stored has arrived.
inline int64_t past_caches_grain(int64_t grain, bool past_caches) {
  return past_caches ? 8 * grain : grain;
}

}  // namespace zinc::kernels::cpu
