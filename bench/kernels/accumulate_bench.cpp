#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/accumulate.h"

namespace zinc::bench {

void add_accumulate_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "accumulate",
              .pass = "forward",
              .shape = str("n=", registry.flat()),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 0, 1),
              .arrays = {{.shape = {registry.flat()}, .low = -1, .high = 1},
                         {.shape = {registry.flat()},
                          .low = -1,
                          .high = 1,
                          .compared = true,
                          .fixed = DType::f32}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::accumulate({.x = v[0], .accumulator = v[1]}, stream);
                  },
              .cost = {.bytes_read = registry.flat() * size_of(dtype) + 4 * registry.flat(),
                       .bytes_written = 4 * registry.flat(),
                       .flops = registry.flat()}});
  }
}

}  // namespace zinc::bench
