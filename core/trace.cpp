#include "core/trace.h"

#include <chrono>
#include <utility>

namespace zinc {

std::string_view name_of(TraceKind kind) {
  switch (kind) {
    case TraceKind::compute:
      return "compute";
    case TraceKind::gather:
      return "gather";
    case TraceKind::release:
      return "release";
    case TraceKind::prefetch:
      return "prefetch";
    case TraceKind::reduce:
      return "reduce";
    case TraceKind::publish:
      return "publish";
    case TraceKind::exchange:
      return "exchange";
    case TraceKind::swap_in:
      return "swap_in";
    case TraceKind::swap_out:
      return "swap_out";
    case TraceKind::step:
      return "step";
    case TraceKind::stall:
      return "stall";
    case TraceKind::io:
      return "io";
    case TraceKind::mark:
      return "mark";
    case TraceKind::memory:
      return "memory";
  }
  return "?";
}

uint64_t TraceRecorder::next_id() {
  const std::lock_guard lock(mutex_);
  return ++last_id_;
}

void TraceRecorder::record(TraceEvent event) {
  const std::lock_guard lock(mutex_);
  if (event.id == 0) event.id = ++last_id_;
  if (static_cast<int64_t>(events_.size()) < capacity_) {
    events_.push_back(std::move(event));
  } else {
    ++dropped_;
  }
}

std::vector<TraceEvent> TraceRecorder::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

std::vector<TraceEvent> TraceRecorder::take() {
  std::vector<TraceEvent> taken;
  const std::lock_guard lock(mutex_);
  taken.reserve(events_.size());
  taken.swap(events_);
  return taken;
}

int64_t TraceRecorder::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void TraceRecorder::clear() {
  const std::lock_guard lock(mutex_);
  events_.clear();
  dropped_ = 0;
}

int64_t TraceRecorder::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace zinc
