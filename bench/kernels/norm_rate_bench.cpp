#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/norm_rate.h"

namespace zinc::bench {

void add_norm_rate_benches(Registry& registry) {
  add_case(registry, {.op = "norm_rate",
                      .pass = "forward",
                      .shape = "n=2",
                      .dtype = DType::f32,
                      .ceiling = {},
                      .arrays = {{.shape = {2}, .low = 1, .high = 2, .fixed = DType::f64},
                                 {.shape = {4}, .low = 0, .high = 0, .compared = true}},
                      .launch =
                          [](const std::vector<View>& v, StreamRef stream) {
                            kernels::norm_rate({.sums = v[0], .lr = 1e-3, .values = v[1]}, stream);
                          },
                      .cost = {.bytes_read = 16, .bytes_written = 16, .flops = 6}});
}

}  // namespace zinc::bench
