#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/binary.h"

namespace zinc::bench {

void add_binary_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "binary",
         .pass = "forward",
         .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(2, 1),
         .arrays =
             {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::binary({.op = kernels::BinaryOp::add, .a = v[0], .b = v[1], .y = v[2]},
                               stream);
             },
         .cost = {.bytes_read = 2 * registry.rows() * registry.cols() * size_of(dtype),
                  .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                  .flops = registry.rows() * registry.cols()}});
    // Layer norms that are written by hand add a value per row.
    add_case(registry,
             {.op = "binary_of_rows",
              .pass = "forward",
              .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 1),
              .arrays = {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
                         {.shape = {registry.rows(), 1}, .low = -1, .high = 1},
                         {.shape = {registry.rows(), registry.cols()}, .compared = true}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::binary({.op = kernels::BinaryOp::sub, .a = v[0], .b = v[1], .y = v[2]},
                                    stream);
                  },
              .cost = {.bytes_read = registry.rows() * (registry.cols() + 1) * size_of(dtype),
                       .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                       .flops = registry.rows() * registry.cols()}});
  }
}

}  // namespace zinc::bench
