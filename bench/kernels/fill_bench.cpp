#include "kernels/fill.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_fill_benches(Registry& registry) {
  const int64_t n = 1 << 26;
  for (const DType dtype : kBenchDTypes) {
    add_case(
        registry,
        {.op = "fill",
         .dtype = dtype,
         .shape = concat("n=", n),
         .ceiling = Ceiling::stream(0, 1),
         .tolerance = 0.0,
         .outputs = {{.shape = {n}, .dtype = dtype}}},
        [](const Views& v) { return Fill{.y = v[0], .value = 0.5}; }, fill);
  }
}

}  // namespace zinc::bench
