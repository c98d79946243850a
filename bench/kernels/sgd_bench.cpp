#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/sgd.h"

namespace zinc::bench {

void add_sgd_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "sgd",
              .pass = "forward",
              .shape = str("n=", registry.flat()),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 0, 2),
              .arrays = {{.shape = {registry.flat()}, .low = -1, .high = 1},
                         {.shape = {registry.flat()},
                          .low = -1,
                          .high = 1,
                          .compared = true,
                          .fixed = DType::f32},
                         {.shape = {registry.flat()},
                          .low = -1,
                          .high = 1,
                          .compared = true,
                          .fixed = DType::f32}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::sgd(
                        {.weights = v[1], .gradient = v[0], .velocity = v[2], .momentum = 0.9},
                        stream);
                  },
              .cost = {.bytes_read = registry.flat() * size_of(dtype) + 8 * registry.flat(),
                       .bytes_written = 8 * registry.flat(),
                       .flops = 4 * registry.flat()}});
  }
}

}  // namespace zinc::bench
