// bench/measure_hardware.h: this machine's hardware file (plan/hardware.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/ceilings.h"
#include "comm/world.h"
#include "plan/hardware.h"

namespace zinc::bench {

struct MeasureOptions {
  std::string name;      // of the processor, or of the GPU
  double seconds = 5.0;  // about, of the kernels
  // Divides sizes of products, rows, messages and arrays: figures that say nothing, at once.
  int64_t shrink = 1;
};

// Called by every rank of the world, all on one host, for their contexts' devices; they measure at
// the same time. A CPU host's rates are the sums of what its ranks get, a GPU's their mean. A world
// of one measures the collectives between two threads of its own: on a GPU two ranks that share it,
// through host memory. Where a product has no library to set the ceiling (f16 on a CPU, builds
// without one) zinc's own kernel does; attention and the other kernels always are zinc's own.
// `ceilings` is what measure_ceilings() gave on this rank.
plan::Hardware measure_hardware(comm::World& world, const std::vector<CeilingFigure>& ceilings,
                                const MeasureOptions& options);

}  // namespace zinc::bench
