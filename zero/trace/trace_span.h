// zero/trace/trace_span.h: writes the engine's events to the trace.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/context.h"
#include "core/stream.h"
#include "core/trace.h"

namespace zinc::zero {

// One trace event for all tasks that are issued to `stream` while the span lives. The event begins
// with the first task, ends with the last, and has the waits of the first. The tasks name the
// event's id as their `span`. Spans of one stream do not nest. Does nothing without a recorder.
class TraceSpan {
 public:
  // `bytes`: the bytes that this rank sends to other ranks.
  TraceSpan(TraceRecorder* recorder, TraceKind kind, StreamRef stream, std::string_view name,
            int64_t bytes);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceRecorder* recorder_;
  StreamRef stream_;
  std::shared_ptr<TraceEvent> event_;
};

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

}  // namespace zinc::zero
