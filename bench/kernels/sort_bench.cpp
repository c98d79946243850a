#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/sort.h"

namespace zinc::bench {

// The 8 largest of every row: a router's choice of experts, a sampler's of tokens.
void add_sort_benches(Registry& registry) {
  const Shape shape{registry.rows(), registry.cols()};
  const Shape first{registry.rows(), 8};
  const int64_t workspace = kernels::sort_workspace_bytes(shape[0], shape[1], DeviceKind::cuda);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(registry, {.op = "sort",
                        .pass = "forward",
                        .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
                        .dtype = dtype,
                        .ceiling = Ceiling::stream(1, 0),
                        .arrays = {{.shape = shape, .low = -1, .high = 1},
                                   {.shape = first, .compared = true},
                                   {.shape = first, .fixed = DType::i64},
                                   {.shape = {workspace}, .fixed = DType::u8}},
                        .launch =
                            [](const std::vector<View>& v, StreamRef stream) {
                              kernels::sort(
                                  {.x = v[0], .values = v[1], .indices = v[2], .workspace = v[3]},
                                  stream);
                            },
                        .cost = {.bytes_read = shape.numel() * size_of(dtype),
                                 .bytes_written = first.numel() * (size_of(dtype) + 8)}});
  }
}

}  // namespace zinc::bench
