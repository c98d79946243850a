#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/attention_merge.h"

namespace zinc::bench {

void add_attention_merge_benches(Registry& registry) {
  const ModelShape& m = registry.model();
  const int64_t rows = std::max<int64_t>(registry.flat() / (m.heads * m.head_dim), 1);
  const Shape shape{1, rows, m.heads, m.head_dim}, of_rows{1, m.heads, rows};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry,
             {.op = "attention_merge",
              .pass = "forward",
              .shape = str("T=", rows, " H=", m.heads, " D=", m.head_dim),
              .dtype = dtype,
              .ceiling = Ceiling::stream(1, 0, 1),
              .arrays =
                  {{.shape = shape, .low = -1, .high = 1},
                   {.shape = of_rows, .low = -1, .high = 1, .fixed = DType::f32},
                   {.shape = shape, .low = -1, .high = 1, .compared = true, .fixed = DType::f32},
                   {.shape = of_rows, .low = -1, .high = 1, .compared = true, .fixed = DType::f32}},
              .launch =
                  [](const std::vector<View>& v, StreamRef stream) {
                    kernels::attention_merge(
                        {.part = v[0], .part_lse = v[1], .out = v[2], .lse = v[3]}, stream);
                  },
              .cost = {.bytes_read = shape.numel() * (size_of(dtype) + 4) + 8 * of_rows.numel(),
                       .bytes_written = 4 * shape.numel() + 4 * of_rows.numel(),
                       .flops = 3 * shape.numel()}});
  }
}

}  // namespace zinc::bench
