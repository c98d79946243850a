#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/permute.h"

namespace zinc::bench {

void add_permute_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "permute",
              .pass = "forward",
              .shape = str("8,", registry.rows() / 8, ",12,", registry.cols() / 12, " by 0,2,1,3"),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 1),
              .arrays = {{.shape = {8, registry.rows() / 8, 12, registry.cols() / 12},
                          .low = -1,
                          .high = 1},
                         {.shape = {8, 12, registry.rows() / 8, registry.cols() / 12},
                          .low = 0,
                          .high = 0,
                          .compared = true}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::permute({.x = v[0], .order = {0, 2, 1, 3}, .y = v[1]}, stream);
                  },
              .cost = {.bytes_read = registry.rows() * registry.cols() * size_of(dtype),
                       .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                       .flops = 0}});
  }
}

}  // namespace zinc::bench
