#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/attention_sinks.h"

namespace zinc::bench {

void add_attention_sinks_benches(Registry& registry) {
  const ModelShape& m = registry.model();
  const int64_t rows = std::max<int64_t>(registry.flat() / (m.heads * m.head_dim), 1);
  const Shape shape{1, rows, m.heads, m.head_dim}, of_rows{1, m.heads, rows}, of_heads{m.heads};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const std::string words = str("T=", rows, " H=", m.heads, " D=", m.head_dim);
    add_case(registry,
             {.op = "attention_sinks",
              .pass = "forward",
              .shape = words,
              .dtype = dtype,
              .ceiling = Ceiling::stream(0, 0, 1),
              .arrays =
                  {{.shape = of_heads, .low = -1, .high = 1, .fixed = DType::f32},
                   {.shape = shape, .low = -1, .high = 1, .compared = true},
                   {.shape = of_rows, .low = -1, .high = 1, .compared = true, .fixed = DType::f32}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::attention_sinks({.sinks = v[0], .out = v[1], .lse = v[2]}, stream);
                  },
              .cost = {.bytes_read = shape.numel() * size_of(dtype) + 4 * of_rows.numel(),
                       .bytes_written = shape.numel() * size_of(dtype) + 4 * of_rows.numel(),
                       .flops = shape.numel()}});
    add_case(registry,
             {.op = "attention_sinks",
              .pass = "backward",
              .shape = words,
              .dtype = dtype,
              .ceiling = Ceiling::stream(2, 0, 0),
              .arrays = {{.shape = of_heads, .low = -1, .high = 1, .fixed = DType::f32},
                         {.shape = shape, .low = -1, .high = 1},
                         {.shape = of_rows, .low = 4, .high = 6, .fixed = DType::f32},
                         {.shape = shape, .low = -1, .high = 1},
                         {.shape = of_heads, .compared = true, .fixed = DType::f32}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::attention_sinks_backward(
                        {.sinks = v[0], .out = v[1], .lse = v[2], .dout = v[3], .dsinks = v[4]},
                        stream);
                  },
              .cost = {.bytes_read = 2 * shape.numel() * size_of(dtype) + 4 * of_rows.numel(),
                       .bytes_written = 4 * of_heads.numel(),
                       .flops = 2 * shape.numel()}});
  }
}

}  // namespace zinc::bench
