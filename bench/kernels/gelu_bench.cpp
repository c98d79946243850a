#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/gelu.h"

namespace zinc::bench {

void add_gelu_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "gelu",
         .pass = "forward",
         .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(1, 1),
         .arrays =
             {{.shape = {registry.rows(), registry.cols()}, .low = -4, .high = 4},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true}},
         .launch = [](const std::vector<View>& v,
                      StreamRef stream) { kernels::gelu_forward({.x = v[0], .y = v[1]}, stream); },
         .cost = {.bytes_read = registry.rows() * registry.cols() * size_of(dtype),
                  .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                  .flops = 10 * registry.rows() * registry.cols()}});
    add_case(
        registry,
        {.op = "gelu",
         .pass = "backward",
         .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(2, 1),
         .arrays =
             {{.shape = {registry.rows(), registry.cols()}, .low = -4, .high = 4},
              {.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::gelu_backward({.x = v[0], .dy = v[1], .dx = v[2]}, stream);
             },
         .cost = {.bytes_read = 2 * registry.rows() * registry.cols() * size_of(dtype),
                  .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                  .flops = 20 * registry.rows() * registry.cols()}});
  }
}

}  // namespace zinc::bench
