#include "kernels/sgd.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_sgd_benches(Registry& registry) {
  const int64_t n = 1 << 24;
  const Operand state{.shape = {n}, .dtype = DType::f32};
  add_case(
      registry,
      {.op = "sgd",
       .pass = "step",
       .dtype = DType::f32,
       .shape = concat("n=", n, ",momentum"),
       .ceiling = Ceiling::stream(1, 0, 2),
       .tolerance = rounding_tolerance(DType::f32, 8),
       .inputs = {{.shape = {n}, .dtype = DType::f32, .seed = 4}},
       .updates = {state, state}},
      [](const Views& v) {
        return Sgd{.weights = v[1],
                   .gradient = v[0],
                   .velocity = v[2],
                   .momentum = 0.9,
                   .weight_decay = 0.1};
      },
      sgd);
}

}  // namespace zinc::bench
