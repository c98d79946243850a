#include "kernels/tree_sum.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_tree_sum_benches(Registry& registry) {
  for (const auto& [count, n] : {std::pair<int64_t, int64_t>{2, 1 << 24}, {8, 1 << 22}}) {
    for (const DType dtype : kBenchDTypes) {
      add_case(
          registry,
          {.op = "tree_sum",
           .dtype = dtype,
           .shape = concat("arrays=", count, ",n=", n),
           .ceiling = Ceiling::stream(static_cast<int>(count), 1),
           .tolerance = rounding_tolerance(dtype, 4),
           .inputs = {{.shape = {count, n}, .dtype = dtype}},
           .outputs = {{.shape = {n}, .dtype = dtype}}},
          [](const Views& v) { return TreeSum{.in = v[0], .out = v[1]}; }, tree_sum);
    }
  }
}

}  // namespace zinc::bench
