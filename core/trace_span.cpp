#include "core/trace_span.h"

#include <algorithm>
#include <string>

#include "core/cuda_backend.h"

namespace zinc {

TraceSpan::TraceSpan(TraceRecorder* recorder, TraceKind kind, StreamRef stream,
                     std::string_view name, int64_t bytes)
    : recorder_(is_recording(stream) ? nullptr : recorder), stream_(stream) {
  if (recorder_ == nullptr) return;
  event_ = std::make_shared<TraceEvent>();
  event_->kind = kind;
  event_->lane = stream->lane();
  event_->name = std::string(name);
  event_->bytes = bytes;
  event_->id = recorder_->next_id();
  stream_->set_trace_span(event_);
}

TraceSpan::~TraceSpan() {
  if (recorder_ == nullptr) return;
  // The span adds a task of its own. So a span without other work has a place in time too.
  stream_.submit("record", [event = event_, recorder = recorder_] {
    event->end_ns = std::max(event->begin_ns, event->end_ns);
    recorder->record(*event);
  });
  stream_->set_trace_span(nullptr);
}

}  // namespace zinc
