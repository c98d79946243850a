// zero/trace/trace_span.h: events of the engine in the trace.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/context.h"
#include "core/stream.h"
#include "core/trace.h"

namespace zinc::zero {

// Brackets what is issued to `stream` while it lives: the event begins with the first of its tasks,
// ends with the last, waited for what the first one waited for, and its id stands in the tasks'
// `span`. Spans of one stream do not nest. Nothing without a recorder.
class TraceSpan {
 public:
  // `bytes`: what this rank sends to its peers.
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

// An event of no length on the issuing thread's lane, now.
void trace_mark(TraceRecorder* recorder, TraceKind kind, std::string_view name,
                int64_t bytes) noexcept;

// What the issuing thread does while it lives; on its lane. Nothing without a recorder.
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

// The live bytes of every label of the device tier, now. Nothing without a recorder.
void trace_memory(Context& context) noexcept;

// The mark of a step, from its first forward to its end. Nothing without a recorder.
class StepTrace {
 public:
  void begin(TraceRecorder* recorder);  // at every forward; the first of a step counts
  void end(Context& context, int64_t step);

 private:
  int64_t begin_ns_ = 0;
};

}  // namespace zinc::zero
