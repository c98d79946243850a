// core/phase_clock.h: measures the phases of a step.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/context.h"

namespace zinc {

// Seconds on this rank, summed over the micro-batches of a step.
struct PhaseSeconds {
  double forward = 0.0;
  double backward = 0.0;
  // Time in which the reduce stream is busy with gradients. A part of it lies within backward and
  // step, which wait for reductions. With overlap the rest is hidden behind backward.
  double gradient_reduction = 0.0;
  double step = 0.0;  // norm, update, publishing of the weights
};

// Off: does nothing and waits for nothing. On: forward, backward and step each end when the compute
// stream has finished their work. So time counts in the phase that issued the work.
class PhaseClock {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  PhaseClock(bool enabled, Context& context);

  Instant start() const;
  void stop(Instant since, double PhaseSeconds::*phase);
  // Call before and after reductions are issued to `stream`.
  void begin_reduction(StreamRef stream);
  void end_reduction(StreamRef stream);
  // The seconds since the last call; absent if the clock is off. Waits for the reduce stream.
  std::optional<PhaseSeconds> take();

 private:
  struct Reductions {
    int64_t began_ns = 0;  // used on the stream's own thread alone
    std::atomic<int64_t> busy_ns = 0;
  };

  bool enabled_;
  Context& context_;
  PhaseSeconds seconds_;
  std::shared_ptr<Reductions> reductions_;
};

}  // namespace zinc
