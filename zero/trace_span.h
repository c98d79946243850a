// zero/trace_span.h: events of the engine in the trace.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/stream.h"
#include "core/trace.h"

namespace zinc::zero {

// Brackets what is issued to `stream` while it lives: the event begins when the stream gets to the
// first of it and ends when it is through the last. Nothing without a recorder.
class TraceSpan {
 public:
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

}  // namespace zinc::zero
