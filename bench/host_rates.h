// bench/host_rates.h: how fast bytes get from host memory to a device and back, and how fast AdamW
// by the CPU is on host memory.
#pragma once

#include <cstdint>

#include "core/context.h"
#include "plan/hardware.h"

namespace zinc::bench {

struct HostRateOptions {
  int64_t bytes = int64_t{256} << 20;  // of a copy; in an update, of all arrays together
  double seconds = 0.5;                // for each figure; at least three runs
};

// Measures the rates of this rank; ranks that measure at the same time share the host's memory.
// Copies are zinc::transfer() between blocks of the tiers pinned_host and device on the compute
// stream, timed by the device's own clock on a GPU. The update, on a GPU's host only: zinc's AdamW
// for bf16 models on the host stream, with the context's threads.
plan::HostRates measure_host_rates(Context& context, const HostRateOptions& options = {});

}  // namespace zinc::bench
