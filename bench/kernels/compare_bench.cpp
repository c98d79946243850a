#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/compare.h"

namespace zinc::bench {

// Masks of a padded batch: x != value.
void add_compare_benches(Registry& registry) {
  const Shape shape{registry.rows(), registry.cols()};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry, {.op = "compare",
                        .pass = "forward",
                        .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
                        .dtype = dtype,
                        .ceiling = Ceiling::stream(1, 1),
                        .arrays = {{.shape = shape, .low = -1, .high = 1},
                                   {.shape = shape, .compared = true, .fixed = DType::u8}},
                        .launch =
                            [](const std::vector<View>& v, StreamRef stream) {
                              kernels::compare({.op = kernels::CompareOp::lt, .a = v[0], .y = v[1]},
                                               stream);
                            },
                        .cost = {.bytes_read = shape.numel() * size_of(dtype),
                                 .bytes_written = shape.numel(),
                                 .flops = shape.numel()}});
  }
}

}  // namespace zinc::bench
