#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/reduce.h"

namespace zinc::bench {

void add_reduce_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "reduce",
              .pass = "forward",
              .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 0),
              .arrays = {{.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 1},
                         {.shape = {registry.cols()},
                          .low = 0,
                          .high = 0,
                          .compared = true,
                          .fixed = DType::f32}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::reduce({.over = kernels::ReduceOver::leading, .x = v[0], .y = v[1]},
                                    stream);
                  },
              .cost = {.bytes_read = registry.rows() * registry.cols() * size_of(dtype),
                       .bytes_written = 4 * registry.cols(),
                       .flops = registry.rows() * registry.cols()}});
  }
}

}  // namespace zinc::bench
