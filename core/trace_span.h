// core/trace_span.h: what several tasks of a stream do together, as one event of the trace.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/stream.h"
#include "core/trace.h"

namespace zinc {

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

}  // namespace zinc
