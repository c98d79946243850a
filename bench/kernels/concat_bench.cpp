#include "kernels/concat.h"

#include "bench/array_case.h"
#include "bench/kernels/all.h"

namespace zinc::bench {

void add_concat_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const int64_t bytes = 3 * registry.rows() * registry.cols() * size_of(dtype);
    add_case(registry,
             {.op = "concat",
              .pass = "forward",
              .shape = str("parts=3,rows=", registry.rows(), ",cols=", registry.cols()),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 1),
              .arrays = {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
                         {.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
                         {.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
                         {.shape = {registry.rows(), 3 * registry.cols()}, .compared = true}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    const ConstView parts[] = {v[0], v[1], v[2]};
                    kernels::concat({.parts = parts, .dim = 1, .whole = v[3]}, stream);
                  },
              .cost = {.bytes_read = bytes, .bytes_written = bytes, .flops = 0}});
  }
}

}  // namespace zinc::bench
