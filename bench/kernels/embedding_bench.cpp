#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/embedding.h"

namespace zinc::bench {

void add_embedding_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "embedding",
              .pass = "forward",
              .shape = concat("tokens=", kRows, ",vocabulary=50257,cols=", kCols),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 1),
              .arrays = {{.shape = {kRows}, .low = 0, .high = 50257, .fixed = DType::i32},
                         {.shape = {50257, kCols}, .low = -1, .high = 1},
                         {.shape = {kRows, kCols}, .low = 0, .high = 0, .compared = true}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::embedding_forward({.ids = v[0], .table = v[1], .y = v[2]}, stream);
                  },
              .cost = {.bytes_read = kRows * kCols * size_of(dtype) + 4 * kRows,
                       .bytes_written = kRows * kCols * size_of(dtype),
                       .flops = 0}});
  }
}

}  // namespace zinc::bench
