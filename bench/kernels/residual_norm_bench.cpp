#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/residual_norm.h"

namespace zinc::bench {

void add_residual_norm_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "residual_norm",
         .pass = "forward",
         .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(2, 2),
         .arrays =
             {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::residual_norm_forward({.x = v[0],
                                               .residual = v[1],
                                               .gamma = v[2],
                                               .beta = v[3],
                                               .sum = v[4],
                                               .y = v[5]},
                                              stream);
             },
         .cost = {.bytes_read = 2 * registry.rows() * registry.cols() * size_of(dtype),
                  .bytes_written = 2 * registry.rows() * registry.cols() * size_of(dtype),
                  .flops = 9 * registry.rows() * registry.cols()}});
  }
}

}  // namespace zinc::bench
