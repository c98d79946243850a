#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "bench/kernels/norm_workspace.h"
#include "kernels/rmsnorm.h"

namespace zinc::bench {

void add_rmsnorm_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "rmsnorm",
         .pass = "forward",
         .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(1, 1),
         .arrays =
             {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::rmsnorm_forward({.x = v[0], .gamma = v[1], .y = v[2]}, stream);
             },
         .cost = {.bytes_read = registry.rows() * registry.cols() * size_of(dtype),
                  .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                  .flops = 4 * registry.rows() * registry.cols()}});
    add_case(registry,
             {.op = "rmsnorm",
              .pass = "backward",
              .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
              .dtype = dtype,
              .ceiling = Ceiling::stream(2, 1),
              .arrays = {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
                         {.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
                         {.shape = {registry.cols()}, .low = -1, .high = 1},
                         {.shape = {registry.rows()}, .low = 1, .high = 2, .fixed = DType::f32},
                         {.shape = {registry.rows(), registry.cols()}, .compared = true},
                         {.shape = {registry.cols()}, .compared = true},
                         norm_workspace(registry.rows(), registry.cols())},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::rmsnorm_backward({.dy = v[0],
                                               .x = v[1],
                                               .gamma = v[2],
                                               .rstd = v[3],
                                               .dx = v[4],
                                               .dgamma = v[5],
                                               .workspace = v[6]},
                                              stream);
                  },
              .cost = {.bytes_read = 2 * registry.rows() * registry.cols() * size_of(dtype),
                       .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                       .flops = 8 * registry.rows() * registry.cols()}});
  }
}

}  // namespace zinc::bench
