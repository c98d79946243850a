// bench/device_clock.h: how long work takes on a context's compute stream.
#pragma once

#include <memory>

#include "bench/samples.h"
#include "core/context.h"
#include "core/cuda_backend.h"

namespace zinc::bench {

// On the CPU the host's clock; on a GPU events of the stream, so that the time between a launch and
// its start on the device is not counted where launches queue up behind each other.
class DeviceClock {
 public:
  explicit DeviceClock(Context& context) : stream_(context.compute()) {
    if (context.device().is_cuda()) timer_ = make_cuda_timer(context.device());
  }
  bool counts_on_device() const { return timer_ != nullptr; }

  // Seconds of what `body` queues; returns when it is done.
  template <class Body>
  double seconds_of(Body&& body) {
    if (timer_ == nullptr) {
      return bench::seconds_of([&] {
        body();
        stream_->synchronize();
      });
    }
    timer_->start(stream_);
    body();
    timer_->stop(stream_);
    const double seconds = timer_->seconds();
    stream_->synchronize();  // throws what the work threw
    return seconds;
  }

 private:
  StreamRef stream_;
  std::unique_ptr<CudaTimer> timer_;
};

}  // namespace zinc::bench
