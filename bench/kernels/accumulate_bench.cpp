#include "kernels/accumulate.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_accumulate_benches(Registry& registry) {
  const int64_t n = 1 << 25;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "accumulate",
         .dtype = dtype,
         .shape = concat("n=", n, ",into=f32"),
         .ceiling = Ceiling::stream(1, 0, 1),
         .tolerance = rounding_tolerance(DType::f32, 1),
         .inputs = {{.shape = {n}, .dtype = dtype}},
         .updates = {{.shape = {n}, .dtype = DType::f32, .seed = 2}}},
        [](const Views& v) { return Accumulate{.x = v[0], .accumulator = v[1]}; }, accumulate);
  }
}

}  // namespace zinc::bench
