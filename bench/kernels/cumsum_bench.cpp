#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/cumsum.h"

namespace zinc::bench {

void add_cumsum_benches(Registry& registry) {
  const Shape shape{registry.rows(), registry.cols()};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "cumsum",
              .pass = "forward",
              .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 1),
              .arrays = {{.shape = shape, .low = 0, .high = 1}, {.shape = shape, .compared = true}},
              .launch = [](const std::vector<View>& v,
                           StreamRef stream) { kernels::cumsum({.x = v[0], .y = v[1]}, stream); },
              .cost = {.bytes_read = shape.numel() * size_of(dtype),
                       .bytes_written = shape.numel() * size_of(dtype),
                       .flops = shape.numel()}});
  }
}

}  // namespace zinc::bench
