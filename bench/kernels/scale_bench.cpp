#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/scale.h"

namespace zinc::bench {

void add_scale_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "scale",
              .pass = "forward",
              .shape = str("n=", registry.flat()),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 1),
              .arrays = {{.shape = {registry.flat()}, .low = -1, .high = 1},
                         {.shape = {registry.flat()}, .low = 0, .high = 0, .compared = true}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::scale({.x = v[0], .factor = 0.75, .y = v[1]}, stream);
                  },
              .cost = {.bytes_read = registry.flat() * size_of(dtype),
                       .bytes_written = registry.flat() * size_of(dtype),
                       .flops = registry.flat()}});
  }
}

}  // namespace zinc::bench
