#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/embedding.h"

namespace zinc::bench {

void add_embedding_benches(Registry& registry) {
  const int64_t vocabulary =
      registry.extent() == Extent::cache ? registry.rows() : registry.model().vocabulary;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add_case(
        registry,
        {.op = "embedding",
         .pass = "forward",
         .shape =
             str("tokens=", registry.rows(), ",vocabulary=", vocabulary, ",cols=", registry.cols()),
         .dtype = dtype,
         .ceiling = Ceiling::stream(1, 1),
         .arrays =
             {{.shape = {registry.rows()},
               .low = 0,
               .high = static_cast<double>(vocabulary),
               .fixed = DType::i32},
              {.shape = {vocabulary, registry.cols()}, .low = -1, .high = 1},
              {.shape = {registry.rows(), registry.cols()}, .low = 0, .high = 0, .compared = true}},
         .launch =
             [](const std::vector<View>& v, StreamRef stream) {
               kernels::embedding_forward({.ids = v[0], .table = v[1], .y = v[2]}, stream);
             },
         .cost = {
             .bytes_read = registry.rows() * registry.cols() * size_of(dtype) + 4 * registry.rows(),
             .bytes_written = registry.rows() * registry.cols() * size_of(dtype),
             .flops = 0}});
  }
}

}  // namespace zinc::bench
