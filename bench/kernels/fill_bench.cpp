#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/fill.h"

namespace zinc::bench {

void add_fill_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "fill",
         .pass = "forward",
         .shape = str("n=", registry.flat()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(0, 1),
         .arrays = {{.shape = {registry.flat()}, .low = 0, .high = 0, .compared = true}},
         .launch = [](const std::vector<View>& v,
                      StreamRef stream) { kernels::fill({.y = v[0], .value = 1.5}, stream); },
         .cost = {.bytes_read = 0, .bytes_written = registry.flat() * size_of(dtype), .flops = 0}});
  }
}

}  // namespace zinc::bench
