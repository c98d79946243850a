// core/trace_marks.h: the events that the issuing thread writes into the trace: marks, phases,
// steps, memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/context.h"
#include "core/trace.h"

namespace zinc {

// Records an event of no length, now, on the lane of the issuing thread. Does nothing without a
// recorder.
void trace_mark(TraceRecorder* recorder, TraceKind kind, std::string_view name,
                int64_t bytes) noexcept;

// One trace event on the lane of the issuing thread, for as long as the object lives. Does nothing
// without a recorder.
class TracePhase {
 public:
  TracePhase(TraceRecorder* recorder, const char* name);
  ~TracePhase();
  TracePhase(const TracePhase&) = delete;
  TracePhase& operator=(const TracePhase&) = delete;

 private:
  TraceRecorder* recorder_;
  const char* name_;
  int64_t begin_ns_;
};

// Records the live bytes of every label of the device tier, now. Does nothing without a recorder.
void trace_memory(Context& context) noexcept;

// The trace event of a step, from its first forward pass to its end. Does nothing without a
// recorder.
class StepTrace {
 public:
  void begin(TraceRecorder* recorder);  // call at every forward; the first of a step counts
  void end(Context& context, int64_t step);

 private:
  int64_t begin_ns_ = 0;
};

}  // namespace zinc
