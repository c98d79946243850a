#include "core/phase_clock.h"

#include <utility>

#include "core/trace.h"

namespace zinc {

PhaseClock::PhaseClock(bool enabled, Context& context)
    : enabled_(enabled), context_(context), reductions_(std::make_shared<Reductions>()) {}

PhaseClock::Instant PhaseClock::start() const {
  return enabled_ ? std::chrono::steady_clock::now() : Instant{};
}

void PhaseClock::stop(Instant since, double PhaseSeconds::*phase) {
  if (!enabled_) return;
  context_.compute()->synchronize();
  seconds_.*phase +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

void PhaseClock::begin_reduction(StreamRef stream) {
  if (!enabled_) return;
  stream.submit("time", [shared = reductions_] { shared->began_ns = TraceRecorder::now_ns(); });
}

void PhaseClock::end_reduction(StreamRef stream) {
  if (!enabled_) return;
  stream.submit("time", [shared = reductions_] {
    shared->busy_ns += TraceRecorder::now_ns() - shared->began_ns;
  });
}

std::optional<PhaseSeconds> PhaseClock::take() {
  if (!enabled_) return std::nullopt;
  context_.stream(StreamRole::reduce)->synchronize();
  seconds_.gradient_reduction = 1e-9 * static_cast<double>(reductions_->busy_ns.exchange(0));
  return std::exchange(seconds_, {});
}

}  // namespace zinc
