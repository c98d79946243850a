#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/finite_norm.h"

namespace zinc::bench {

void add_finite_norm_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry, {.op = "finite_norm",
                        .pass = "forward",
                        .shape = str("n=", registry.flat()),
                        .dtype = dtype,
                        .ceiling = Ceiling::stream(1, 0),
                        .arrays = {{.shape = {registry.flat()}, .low = -1, .high = 1},
                                   {.shape = {registry.flat() / 1024},
                                    .low = 0,
                                    .high = 0,
                                    .compared = true,
                                    .fixed = DType::f64},
                                   {.shape = {1}, .fixed = DType::i64}},
                        .launch =
                            [](const std::vector<View>& v, StreamRef stream) {
                              kernels::finite_norm(
                                  {.x = v[0], .chunk_sums = v[1], .first_nonfinite = v[2]}, stream);
                            },
                        .cost = {.bytes_read = registry.flat() * size_of(dtype),
                                 .bytes_written = registry.flat() / 128,
                                 .flops = 2 * registry.flat()}});
  }
}

}  // namespace zinc::bench
