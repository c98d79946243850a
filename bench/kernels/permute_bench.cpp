#include "kernels/permute.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_permute_benches(Registry& registry) {
  for (const DType dtype : kBenchDTypes) {
    // Heads to the front, as attention wants them, and a plain transpose of weights.
    add_case(
        registry,
        {.op = "permute",
         .dtype = dtype,
         .shape = "B=16,T=1024,H=12,D=64,order=0213",
         .ceiling = Ceiling::stream(1, 1),
         .tolerance = 0.0,
         .inputs = {{.shape = {16, 1024, 12, 64}, .dtype = dtype}},
         .outputs = {{.shape = {16, 12, 1024, 64}, .dtype = dtype}}},
        [](const Views& v) {
          return Permute{.x = v[0], .order = {0, 2, 1, 3}, .y = v[1]};
        },
        permute);
    add_case(
        registry,
        {.op = "permute",
         .dtype = dtype,
         .shape = "rows=4096,cols=3072,order=10",
         .ceiling = Ceiling::stream(1, 1),
         .tolerance = 0.0,
         .inputs = {{.shape = {4096, 3072}, .dtype = dtype}},
         .outputs = {{.shape = {3072, 4096}, .dtype = dtype}}},
        [](const Views& v) {
          return Permute{.x = v[0], .order = {1, 0}, .y = v[1]};
        },
        permute);
  }
}

}  // namespace zinc::bench
