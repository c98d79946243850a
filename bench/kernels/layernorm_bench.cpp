#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "bench/kernels/norm_workspace.h"
#include "kernels/layernorm.h"

namespace zinc::bench {

void add_layernorm_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "layernorm",
         .pass = "forward",
         .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(1, 1),
         .arrays =
             {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true},
              {.shape = {registry.rows()},
               .low = 0,
               .high = 0,
               .compared = true,
               .fixed = DType::f32},
              {.shape = {registry.rows()},
               .low = 0,
               .high = 0,
               .compared = true,
               .fixed = DType::f32}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::layernorm_forward(
                   {.x = v[0], .gamma = v[1], .beta = v[2], .y = v[3], .mean = v[4], .rstd = v[5]},
                   stream);
             },
         .cost = {.bytes_read = registry.rows() * registry.cols() * size_of(dtype),
                  .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                  .flops = 8 * registry.rows() * registry.cols()}});
    add_case(
        registry,
        {.op = "layernorm",
         .pass = "backward",
         .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(2, 1),
         .arrays = {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
                    {.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
                    {.shape = {registry.cols()}, .low = -1, .high = 1},
                    {.shape = {registry.rows()}, .low = -0.1, .high = 0.1, .fixed = DType::f32},
                    {.shape = {registry.rows()}, .low = 1, .high = 2, .fixed = DType::f32},
                    {.shape = {registry.rows(), registry.cols()}, .compared = true},
                    {.shape = {registry.cols()}, .compared = true},
                    {.shape = {registry.cols()}, .compared = true},
                    norm_workspace(registry.rows(), registry.cols())},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::layernorm_backward({.dy = v[0],
                                            .x = v[1],
                                            .gamma = v[2],
                                            .mean = v[3],
                                            .rstd = v[4],
                                            .dx = v[5],
                                            .dgamma = v[6],
                                            .dbeta = v[7],
                                            .workspace = v[8]},
                                           stream);
             },
         .cost = {.bytes_read = 2 * registry.rows() * registry.cols() * size_of(dtype),
                  .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                  .flops = 12 * registry.rows() * registry.cols()}});
  }
}

}  // namespace zinc::bench
