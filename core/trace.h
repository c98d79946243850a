// core/trace.h: a bounded record of what happened when, on which lane, waiting for what.
//
// train/trace turns it into a file that Perfetto opens. Recording is off unless a recorder
// is given to the Context; every call is thread-safe and costs one lock and one copy.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace zinc {

enum class TraceKind : uint8_t {
  compute,
  gather,
  release,
  prefetch,
  reduce,
  publish,   // the gather of updated weights after a step
  exchange,  // a collective or message of ranks that share a layer, a sequence or a pipeline
  swap_in,
  swap_out,
  step,
  stall,  // time in which a stream or the host waited for `waited_for`
  io,
  mark,
  memory,  // a figure, not a time: `bytes` live of the label `name`
};
std::string_view name_of(TraceKind kind);

struct TraceEvent {
  TraceKind kind = TraceKind::mark;
  int lane = 0;          // a stream's lane; lane 0 is the issuing thread
  std::string name;      // "h.3", "layernorm_forward"
  int64_t begin_ns = 0;  // steady clock
  int64_t end_ns = 0;
  int64_t bytes = 0;        // moved or allocated; 0 where it means nothing
  uint64_t id = 0;          // unique within the recorder, > 0
  uint64_t waited_for = 0;  // id of the event whose end let this one begin; 0: none
  uint64_t span = 0;        // id of the gather, reduction, ... that this task is part of; 0: none
  int64_t step = 0;         // the step's number where kind is step; 0 elsewhere
};

class TraceRecorder {
 public:
  // Keeps the first `capacity` events and counts the rest as dropped.
  explicit TraceRecorder(int64_t capacity = 1 << 20) : capacity_(capacity) {}

  uint64_t next_id();
  void record(TraceEvent event);  // assigns an id where event.id is 0
  std::vector<TraceEvent> events() const;
  // Returns the events that are kept and makes room for as many again.
  std::vector<TraceEvent> take();
  int64_t dropped() const;
  void clear();

  static int64_t now_ns();

 private:
  const int64_t capacity_;
  mutable std::mutex mutex_;
  std::vector<TraceEvent> events_;
  int64_t dropped_ = 0;
  uint64_t last_id_ = 0;
};

}  // namespace zinc
