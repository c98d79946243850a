#include "kernels/concat.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_concat_benches(Registry& registry) {
  const int64_t rows = 16384, cols = 768;
  for (const DType dtype : kBenchDTypes) {
    const Operand part{.shape = {rows, cols}, .dtype = dtype};
    const ArrayCase entry{.op = "concat",
                          .dtype = dtype,
                          .shape = zinc::concat("parts=3,rows=", rows, ",cols=", cols),
                          .ceiling = Ceiling::stream(1, 1),
                          .tolerance = 0.0,
                          .inputs = {part, part, part},
                          .outputs = {{.shape = {rows, 3 * cols}, .dtype = dtype}}};
    add_array_case(registry, entry, cost(Concat{.parts = {}, .whole = shape_views(entry)[3]}),
                   [](const Views& v, StreamRef stream) {
                     const ConstView parts[] = {v[0], v[1], v[2]};
                     kernels::concat({.parts = parts, .dim = 1, .whole = v[3]}, stream);
                   });
  }
}

}  // namespace zinc::bench
