#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/swiglu.h"

namespace zinc::bench {

void add_swiglu_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "swiglu",
         .pass = "forward",
         .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(2, 1),
         .arrays =
             {{.shape = {registry.rows(), registry.cols()}, .low = -4, .high = 4},
              {.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::swiglu_forward({.gate = v[0], .up = v[1], .y = v[2]}, stream);
             },
         .cost = {.bytes_read = 2 * registry.rows() * registry.cols() * size_of(dtype),
                  .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                  .flops = 6 * registry.rows() * registry.cols()}});
    add_case(
        registry,
        {.op = "swiglu",
         .pass = "backward",
         .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(3, 2),
         .arrays =
             {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = -4, .high = 4},
              {.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::swiglu_backward(
                   {.dy = v[0], .gate = v[1], .up = v[2], .dgate = v[3], .dup = v[4]}, stream);
             },
         .cost = {.bytes_read = 3 * registry.rows() * registry.cols() * size_of(dtype),
                  .bytes_written = 2 * registry.rows() * registry.cols() * size_of(dtype),
                  .flops = 12 * registry.rows() * registry.cols()}});
  }
}

}  // namespace zinc::bench
