#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/rotary.h"

namespace zinc::bench {

void add_rotary_benches(Registry& registry) {
  const ModelShape& model = registry.model();
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "rotary",
              .pass = "forward",
              .shape = str("8,", registry.rows() / 8, ",", model.heads, ",", model.head_dim),
              .dtype = dtype,
              .ceiling = Ceiling::stream(0, 0, 1),
              .arrays = {{.shape = {8, registry.rows() / 8, model.heads, model.head_dim},
                          .low = -1,
                          .high = 1,
                          .compared = true},
                         {.shape = {registry.rows() / 8, model.head_dim / 2},
                          .low = -1,
                          .high = 1,
                          .fixed = DType::f32},
                         {.shape = {registry.rows() / 8, model.head_dim / 2},
                          .low = -1,
                          .high = 1,
                          .fixed = DType::f32}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::rotary({.q = v[0], .cos = v[1], .sin = v[2]}, stream);
                  },
              .cost = {.bytes_read = registry.rows() * registry.cols() * size_of(dtype),
                       .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
                       .flops = 3 * registry.rows() * registry.cols()}});
  }
}

}  // namespace zinc::bench
