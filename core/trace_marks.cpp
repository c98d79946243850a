#include "core/trace_marks.h"

#include <string>

#include "core/error.h"

namespace zinc {

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

TracePhase::TracePhase(TraceRecorder* recorder, const char* name)
    : recorder_(recorder),
      name_(name),
      begin_ns_(recorder == nullptr ? 0 : TraceRecorder::now_ns()) {}

TracePhase::~TracePhase() {
  if (recorder_ == nullptr) return;
  try {
    recorder_->record({.kind = TraceKind::mark,
                       .name = name_,
                       .begin_ns = begin_ns_,
                       .end_ns = TraceRecorder::now_ns()});
  } catch (...) {  // a lost trace line must not replace the error that is on its way
  }
}

void trace_memory(Context& context) noexcept {
  TraceRecorder* const recorder = context.trace();
  if (recorder == nullptr) return;
  try {
    const MemoryReport report = context.allocator().report();
    const int64_t now = TraceRecorder::now_ns();
    for (int i = 0; i < kNumLabels; ++i) {
      const auto label = static_cast<Label>(i);
      const MemoryFigures& figures = report.at(Tier::device, label);
      if (figures.peak == 0) continue;
      recorder->record({.kind = TraceKind::memory,
                        .name = std::string(name_of(label)),
                        .begin_ns = now,
                        .end_ns = now,
                        .bytes = figures.live});
    }
  } catch (...) {  // a lost figure must not end a run
  }
}

void StepTrace::begin(TraceRecorder* recorder) {
  if (recorder != nullptr && begin_ns_ == 0) begin_ns_ = TraceRecorder::now_ns();
}

void StepTrace::end(Context& context, int64_t step) {
  TraceRecorder* const recorder = context.trace();
  if (recorder == nullptr) return;
  trace_memory(context);
  recorder->record({.kind = TraceKind::step,
                    .name = str("step ", step),
                    .begin_ns = begin_ns_,
                    .end_ns = TraceRecorder::now_ns(),
                    .step = step});
  begin_ns_ = 0;
}

}  // namespace zinc
