#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/select.h"

namespace zinc::bench {

// masked_fill of scores.
void add_select_benches(Registry& registry) {
  const Shape shape{registry.rows(), registry.cols()};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry, {.op = "select",
                        .pass = "forward",
                        .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
                        .dtype = dtype,
                        .ceiling = Ceiling::stream(1, 1),
                        .arrays = {{.shape = shape, .low = 0, .high = 2, .fixed = DType::u8},
                                   {.shape = shape, .low = -1, .high = 1},
                                   {.shape = shape, .compared = true}},
                        .launch =
                            [](const std::vector<View>& v, StreamRef stream) {
                              kernels::select({.mask = v[0], .a_value = -1e4, .b = v[1], .y = v[2]},
                                              stream);
                            },
                        .cost = {.bytes_read = shape.numel() * (1 + size_of(dtype)),
                                 .bytes_written = shape.numel() * size_of(dtype)}});
  }
}

}  // namespace zinc::bench
