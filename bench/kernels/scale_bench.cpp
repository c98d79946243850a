#include "kernels/scale.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_scale_benches(Registry& registry) {
  const int64_t n = 1 << 25;
  for (const DType dtype : kBenchDTypes) {
    add_case(
        registry,
        {.op = "scale",
         .dtype = dtype,
         .shape = concat("n=", n),
         .ceiling = Ceiling::stream(1, 1),
         .tolerance = rounding_tolerance(dtype, 2),
         .inputs = {{.shape = {n}, .dtype = dtype}},
         .outputs = {{.shape = {n}, .dtype = dtype}}},
        [](const Views& v) { return Scale{.x = v[0], .factor = 0.3, .y = v[1]}; }, scale);
  }
}

}  // namespace zinc::bench
