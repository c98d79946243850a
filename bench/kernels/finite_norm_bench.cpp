#include "kernels/finite_norm.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_finite_norm_benches(Registry& registry) {
  const int64_t n = 1 << 26;
  for (const DType dtype : kBenchDTypes) {
    add_case(
        registry,
        {.op = "finite_norm",
         .dtype = dtype,
         .shape = concat("n=", n),
         .ceiling = Ceiling::stream(1, 0),
         .tolerance = 0.0,  // squares of both formats are exact in f64, and the order is the same
         .inputs = {{.shape = {n}, .dtype = dtype}},
         .outputs = {{.shape = {num_norm_chunks(n)}, .dtype = DType::f64}},
         .workspace = [](DType) { return 8; }},
        [](const Views& v) {
          return FiniteNorm{
              .x = v[0], .chunk_sums = v[1], .first_nonfinite = v[2].as_dtype(DType::i64)};
        },
        finite_norm);
  }
}

}  // namespace zinc::bench
