#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/argmax.h"

namespace zinc::bench {

void add_argmax_benches(Registry& registry) {
  const Shape shape{registry.rows(), registry.cols()};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "argmax",
              .pass = "forward",
              .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 0),
              .arrays = {{.shape = shape, .low = -1, .high = 1},
                         {.shape = {registry.rows()}, .fixed = DType::i64}},
              .launch = [](const std::vector<View>& v,
                           StreamRef stream) { kernels::argmax({.x = v[0], .y = v[1]}, stream); },
              .cost = {.bytes_read = shape.numel() * size_of(dtype),
                       .bytes_written = registry.rows() * 8,
                       .flops = shape.numel()}});
  }
}

}  // namespace zinc::bench
