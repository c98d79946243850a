#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/tree_sum.h"

namespace zinc::bench {

void add_tree_sum_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry, {.op = "tree_sum",
                        .pass = "forward",
                        .shape = str("ranks=4,n=", registry.flat() / 4),
                        .dtype = dtype,
                        .ceiling = Ceiling::stream(4, 1),
                        .arrays = {{.shape = {4, registry.flat() / 4}, .low = 0, .high = 1},
                                   {.shape = {registry.flat() / 4},
                                    .low = 0,
                                    .high = 0,
                                    .compared = true,
                                    .fixed = DType::f32}},
                        .launch =
                            [](const std::vector<View>& v, StreamRef stream) {
                              kernels::tree_sum({.in = v[0], .out = v[1]}, stream);
                            },
                        .cost = {.bytes_read = registry.flat() * size_of(dtype),
                                 .bytes_written = registry.flat(),
                                 .flops = 3 * registry.flat() / 4}});
  }
}

}  // namespace zinc::bench
