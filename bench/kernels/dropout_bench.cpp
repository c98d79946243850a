#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "core/philox.h"
#include "kernels/dropout.h"

namespace zinc::bench {

void add_dropout_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "dropout",
         .pass = "forward",
         .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(1, 1),
         .arrays =
             {{.shape = {registry.rows(), registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::dropout({.x = v[0],
                                 .y = v[1],
                                 .p = 0.1,
                                 .key = make_random_key(1, Purpose::test, 0, 0, 0)},
                                stream);
             },
         .cost = {.bytes_read = registry.rows() * registry.cols() * size_of(dtype),
                  .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                  .flops = registry.rows() * registry.cols()}});
  }
}

}  // namespace zinc::bench
