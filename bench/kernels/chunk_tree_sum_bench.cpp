#include "kernels/chunk_tree_sum.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_chunk_tree_sum_benches(Registry& registry) {
  const int64_t n = 1 << 17;  // the chunks of 128 M gradients
  add_case(
      registry,
      {.op = "chunk_tree_sum",
       .dtype = DType::f64,
       .shape = concat("n=", n),
       .ceiling = {},
       .tolerance = 0.0,
       .inputs = {{.shape = {n}, .dtype = DType::f64}},
       .outputs = {{.shape = {1}, .dtype = DType::f64}}},
      [](const Views& v) { return ChunkTreeSum{.sums = v[0], .out = v[1]}; }, chunk_tree_sum);
}

}  // namespace zinc::bench
