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
  std::string name;      // name of the processor, or of the GPU
  double seconds = 5.0;  // about, for the kernels
  // Divides sizes of products, rows, messages and arrays. Large values give meaningless figures in
  // no time, for tests.
  int64_t shrink = 1;
};

// Called by every rank of the world, all on one host, for their contexts' devices; they measure at
// the same time. A CPU host's rates are the sums of its ranks' rates, a GPU's rates their mean. A
// world of one measures collectives between two threads of its process; on a GPU these are two
// ranks that share it, through host memory. If a product has no library to set the ceiling (f16 on
// a CPU, builds without one), zinc's own kernel does; attention and the other kernels always are
// zinc's own. `ceilings`: the result of measure_ceilings() on this rank.
plan::Hardware measure_hardware(comm::World& world, const std::vector<CeilingFigure>& ceilings,
                                const MeasureOptions& options);

}  // namespace zinc::bench
