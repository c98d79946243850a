#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/flat_index.h"

namespace zinc::bench {

void add_flat_index_benches(Registry& registry) {
  const Shape shape{1, registry.rows(), registry.cols()};
  add_case(registry,
           {.op = "flat_index",
            .pass = "forward",
            .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
            .dtype = DType::f32,
            .ceiling = Ceiling::stream(1, 2),
            .arrays = {{.shape = shape, .low = 0, .high = 100, .fixed = DType::i32},
                       {.shape = shape, .compared = true, .fixed = DType::i64}},
            .launch =
                [](const std::vector<View>& v, StreamRef stream) {
                  kernels::flat_index({.index = v[0], .extent = 100, .flat = v[1]}, stream);
                },
            .cost = {.bytes_read = shape.numel() * 4, .bytes_written = shape.numel() * 8}});
}

}  // namespace zinc::bench
