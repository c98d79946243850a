#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/gather_rows.h"

namespace zinc::bench {

void add_gather_rows_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "gather_rows",
         .pass = "forward",
         .shape = str("rows=", registry.rows(), ",of=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(1, 1),
         .arrays =
             {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows()},
               .low = 0,
               .high = static_cast<double>(registry.rows()),
               .fixed = DType::i32},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::gather_rows({.x = v[0], .ids = v[1], .y = v[2]}, stream);
             },
         .cost = {
             .bytes_read = registry.rows() * registry.cols() * size_of(dtype) + 4 * registry.rows(),
             .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
             .flops = 0}});
  }
}

}  // namespace zinc::bench
