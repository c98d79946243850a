// core/stall.h: waiting for an event, with a trace of the waits that really blocked. For the
// implementations of streams.
#pragma once

#include <cstdint>

#include "core/stream.h"

namespace zinc {

class TraceRecorder;

inline constexpr int kHostLane = 0;  // row of the issuing thread in a trace

// Waits for the event in the calling thread and rethrows what its work threw. Where the wait blocks
// and there is a recorder, records a stall on `lane`, also when it throws. Returns the trace id of
// the work that the wait blocked for; 0 where it did not block or nothing is traced. A waiting
// thread that does the work itself does not block.
uint64_t wait_with_stall(Event::State& state, TraceRecorder* trace, int lane);

}  // namespace zinc
