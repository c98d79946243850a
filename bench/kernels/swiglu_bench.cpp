#include "kernels/swiglu.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_swiglu_benches(Registry& registry) {
  const int64_t n = 1 << 24;
  for (const DType dtype : kBenchDTypes) {
    const Operand gate{.shape = {n}, .dtype = dtype, .low = -4.0, .high = 4.0};
    const Operand up{.shape = {n}, .dtype = dtype, .seed = 2};
    const Operand dy{.shape = {n}, .dtype = dtype, .seed = 3};
    add_case(
        registry,
        {.op = "swiglu",
         .dtype = dtype,
         .shape = concat("n=", n),
         .ceiling = Ceiling::stream(2, 1),
         .tolerance = rounding_tolerance(dtype, 16),
         .inputs = {gate, up},
         .outputs = {up}},
        [](const Views& v) { return SwiGluForward{.gate = v[0], .up = v[1], .y = v[2]}; },
        swiglu_forward);
    add_case(
        registry,
        {.op = "swiglu",
         .pass = "backward",
         .dtype = dtype,
         .shape = concat("n=", n),
         .ceiling = Ceiling::stream(3, 2),
         .tolerance = rounding_tolerance(dtype, 16),
         .inputs = {dy, gate, up},
         .outputs = {gate, up}},
        [](const Views& v) {
          return SwiGluBackward{.dy = v[0], .gate = v[1], .up = v[2], .dgate = v[3], .dup = v[4]};
        },
        swiglu_backward);
  }
}

}  // namespace zinc::bench
