#include "zero/trace_span.h"

#include <string>

namespace zinc::zero {

TraceSpan::TraceSpan(TraceRecorder* recorder, TraceKind kind, StreamRef stream,
                     std::string_view name, int64_t bytes)
    : recorder_(recorder), stream_(stream) {
  if (recorder_ == nullptr) return;
  event_ = std::make_shared<TraceEvent>();
  event_->kind = kind;
  event_->lane = stream->lane();
  event_->name = std::string(name);
  event_->bytes = bytes;
  stream_.submit("trace", [event = event_] { event->begin_ns = TraceRecorder::now_ns(); });
}

TraceSpan::~TraceSpan() {
  if (recorder_ == nullptr) return;
  stream_.submit("trace", [event = event_, recorder = recorder_] {
    event->end_ns = TraceRecorder::now_ns();
    recorder->record(*event);
  });
}

void trace_mark(TraceRecorder* recorder, TraceKind kind, std::string_view name,
                int64_t bytes) noexcept {
  if (recorder == nullptr) return;
  TraceEvent event;
  event.kind = kind;
  event.name = std::string(name);
  event.begin_ns = event.end_ns = TraceRecorder::now_ns();
  event.bytes = bytes;
  recorder->record(std::move(event));
}

}  // namespace zinc::zero
