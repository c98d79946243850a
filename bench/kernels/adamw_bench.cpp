#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/adamw.h"

namespace zinc::bench {

void add_adamw_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "adamw",
         .pass = "forward",
         .shape = str("n=", registry.flat()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(1, 0, 3),
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
                     .fixed = DType::f32},
                    {.shape = {registry.flat()},
                     .low = 0,
                     .high = 1,
                     .compared = true,
                     .fixed = DType::f32}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::adamw(
                   {.weights = v[1], .gradient = v[0], .m = v[2], .v = v[3], .weight_decay = 0.1},
                   stream);
             },
         .cost = {.bytes_read = registry.flat() * size_of(dtype) + 12 * registry.flat(),
                  .bytes_written = 12 * registry.flat(),
                  .flops = 15 * registry.flat()}});
  }
}

}  // namespace zinc::bench
