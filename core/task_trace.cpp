#include "core/task_trace.h"

#include <utility>

namespace zinc {

TaskTrace::TaskTrace(TraceRecorder* trace, const char* label, int lane, uint64_t id,
                     uint64_t waited_for, std::shared_ptr<TraceEvent> span)
    : trace_(trace),
      label_(label),
      lane_(lane),
      id_(id),
      waited_for_(waited_for),
      span_(std::move(span)),
      begin_ns_(trace == nullptr ? 0 : TraceRecorder::now_ns()) {
  if (span_ == nullptr || span_->begin_ns != 0) return;
  span_->begin_ns = begin_ns_;
  span_->waited_for = waited_for;
}

TaskTrace::~TaskTrace() {
  if (trace_ == nullptr) return;
  const int64_t end_ns = TraceRecorder::now_ns();
  if (span_ != nullptr) span_->end_ns = end_ns;
  try {
    trace_->record({.kind = TraceKind::compute,
                    .lane = lane_,
                    .name = label_,
                    .begin_ns = begin_ns_,
                    .end_ns = end_ns,
                    .id = id_,
                    .waited_for = waited_for_,
                    .span = span_ == nullptr ? 0 : span_->id});
  } catch (...) {  // a lost trace line must not replace the error that is on its way
  }
}

}  // namespace zinc
