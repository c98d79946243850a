// core/task_trace.h: the trace line of one task of a stream. For the implementations of streams.
#pragma once

#include <cstdint>
#include <memory>

#include "core/trace.h"

namespace zinc {

// Records a compute event from construction to destruction; nothing without a recorder. The first
// task of a span sets the span's begin and `waited_for`, the last one its end.
class TaskTrace {
 public:
  TaskTrace(TraceRecorder* trace, const char* label, int lane, uint64_t id, uint64_t waited_for,
            std::shared_ptr<TraceEvent> span);
  ~TaskTrace();
  TaskTrace(const TaskTrace&) = delete;
  TaskTrace& operator=(const TaskTrace&) = delete;

 private:
  TraceRecorder* trace_;
  const char* label_;
  int lane_;
  uint64_t id_;
  uint64_t waited_for_;
  std::shared_ptr<TraceEvent> span_;
  int64_t begin_ns_;
};

}  // namespace zinc
