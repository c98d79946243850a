#include "kernels/copy.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_copy_benches(Registry& registry) {
  const int64_t n = 1 << 25;
  for (const DType from : kBenchDTypes) {
    for (const DType to : kBenchDTypes) {
      add_case(
          registry,
          {.op = "copy",
           .dtype = from,
           .shape = concat("n=", n, ",to=", to),
           .ceiling = Ceiling::stream(1, 1),
           .tolerance = to == DType::bf16 ? rounding_tolerance(to, 0) : 0.0,
           .inputs = {{.shape = {n}, .dtype = from}},
           .outputs = {{.shape = {n}, .dtype = to}}},
          [](const Views& v) { return Copy{.x = v[0], .y = v[1]}; }, copy);
    }
  }
}

}  // namespace zinc::bench
