#include "core/task_trace.h"

namespace zinc {

TaskTrace::TaskTrace(TraceRecorder* trace, const char* label, int lane, uint64_t id,
                     uint64_t waited_for)
    : trace_(trace),
      label_(label),
      lane_(lane),
      id_(id),
      waited_for_(waited_for),
      begin_ns_(trace == nullptr ? 0 : TraceRecorder::now_ns()) {}

TaskTrace::~TaskTrace() {
  if (trace_ == nullptr) return;
  try {
    trace_->record({.kind = TraceKind::compute,
                    .lane = lane_,
                    .name = label_,
                    .begin_ns = begin_ns_,
                    .end_ns = TraceRecorder::now_ns(),
                    .id = id_,
                    .waited_for = waited_for_});
  } catch (...) {  // a lost trace line must not replace the error that is on its way
  }
}

}  // namespace zinc
