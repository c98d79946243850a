// zero/trace/phase_clock.h: where the time of a step goes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/context.h"

namespace zinc::zero {

// Seconds on this rank, summed over the micro-batches of a step.
struct PhaseSeconds {
  double forward = 0.0;
  double backward = 0.0;
  // The reduce stream is busy with gradients. Part of it lies within backward and step, where they
  // wait for it; with overlap the rest is hidden behind backward.
  double gradient_reduction = 0.0;
  double step = 0.0;  // norm, update, publishing of the weights
};

// Off, it does nothing and waits for nothing. On, forward, backward and step each end when the
// compute stream is through with them, so that work is counted where it was issued.
class PhaseClock {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  PhaseClock(bool enabled, Context& context);

  Instant start() const;
  void stop(Instant since, double PhaseSeconds::*phase);
  // Around the reductions that are issued to `stream` in between.
  void begin_reduction(StreamRef stream);
  void end_reduction(StreamRef stream);
  // What came together since the last call; absent where the clock is off. Waits for the reduce
  // stream.
  std::optional<PhaseSeconds> take();

 private:
  struct Reductions {
    int64_t began_ns = 0;  // of the stream's own thread
    std::atomic<int64_t> busy_ns = 0;
  };

  bool enabled_;
  Context& context_;
  PhaseSeconds seconds_;
  std::shared_ptr<Reductions> reductions_;
};

}  // namespace zinc::zero
