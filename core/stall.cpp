#include "core/stall.h"

#include "core/trace.h"

namespace zinc {
namespace {

class StallRecord {
 public:
  StallRecord(TraceRecorder& trace, int lane, uint64_t waited_for)
      : trace_(trace), lane_(lane), waited_for_(waited_for), begin_ns_(TraceRecorder::now_ns()) {}
  ~StallRecord() {
    try {
      trace_.record({.kind = TraceKind::stall,
                     .lane = lane_,
                     .name = "wait",
                     .begin_ns = begin_ns_,
                     .end_ns = TraceRecorder::now_ns(),
                     .waited_for = waited_for_});
    } catch (...) {  // a lost trace line must not replace the error that is on its way
    }
  }
  StallRecord(const StallRecord&) = delete;
  StallRecord& operator=(const StallRecord&) = delete;

 private:
  TraceRecorder& trace_;
  int lane_;
  uint64_t waited_for_;
  int64_t begin_ns_;
};

}  // namespace

uint64_t wait_with_stall(Event::State& state, TraceRecorder* trace, int lane) {
  if (trace == nullptr || state.is_run_by_waiter() || state.query()) {
    state.wait();
    return 0;
  }
  const uint64_t producer = state.trace_id();
  const StallRecord record(*trace, lane, producer);
  state.wait();
  return producer;
}

}  // namespace zinc
