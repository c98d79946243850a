#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/chunk_tree_sum.h"

namespace zinc::bench {

void add_chunk_tree_sum_benches(Registry& registry) {
  for (const DType dtype : {DType::f32}) {
    add_case(
        registry,
        {.op = "chunk_tree_sum",
         .pass = "forward",
         .shape = str("n=", registry.flat()),
         .dtype = dtype,
         .ceiling = {},
         .arrays = {{.shape = {registry.flat() / 1024}, .low = 0, .high = 1, .fixed = DType::f64},
                    {.shape = {1}, .low = 0, .high = 0, .compared = true, .fixed = DType::f64}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::chunk_tree_sum({.sums = v[0], .trees = {{0, v[0].numel()}}, .out = v[1]},
                                       stream);
             },
         .cost = {.bytes_read = registry.flat() / 128,
                  .bytes_written = 8,
                  .flops = registry.flat() / 1024}});
  }
}

}  // namespace zinc::bench
