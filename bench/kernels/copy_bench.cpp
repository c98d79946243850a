#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/copy.h"

namespace zinc::bench {

void add_copy_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "copy",
              .pass = "forward",
              .shape = str("n=", registry.flat()),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 1),
              .arrays = {{.shape = {registry.flat()}, .low = -1, .high = 1},
                         {.shape = {registry.flat()},
                          .low = 0,
                          .high = 0,
                          .compared = true,
                          .fixed = DType::f32}},
              .launch = [](const std::vector<View>& v,
                           StreamRef stream) { kernels::copy({.x = v[0], .y = v[1]}, stream); },
              .cost = {.bytes_read = registry.flat() * size_of(dtype),
                       .bytes_written = 4 * registry.flat(),
                       .flops = 0}});
  }
}

}  // namespace zinc::bench
