// bench/roofline.h: the kernels of a run against what memory and arithmetic allow.
#pragma once

#include <string>
#include <vector>

#include "bench/kernel_bench.h"

namespace zinc::bench {

struct Roof {
  double gb_per_s = 0.0;     // the best stream ceiling of the run
  double gflop_per_s = 0.0;  // the best GEMM ceiling, or the fastest kernel if there is none
};
// Figures above 0 replace measured ones. Throws InvalidArgument if there is no figure for the roof.
Roof roof_of(const KernelReport& report, double peak_gb_per_s = 0.0, double peak_gflop_per_s = 0.0);

// A line per kernel: flops per byte, the roof's limit there, the reached rate, and which bound
// holds.
std::string roofline_text(const KernelReport& report, const Roof& roof);
// A separate drawing with two logarithmic axes; each point has its name as a tooltip.
std::string roofline_svg(const KernelReport& report, const Roof& roof);

}  // namespace zinc::bench
