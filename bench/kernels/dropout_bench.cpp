#include "kernels/dropout.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_dropout_benches(Registry& registry) {
  const int64_t n = 1 << 25;
  constexpr RandomKey kKey = make_random_key(1, Purpose::dropout, 2, 3, 4);
  for (const DType dtype : kBenchDTypes) {
    const Operand x{.shape = {n}, .dtype = dtype};
    const Operand residual{.shape = {n}, .dtype = dtype, .seed = 2};
    add_case(
        registry,
        {.op = "dropout",
         .dtype = dtype,
         .shape = concat("n=", n),
         .ceiling = Ceiling::stream(1, 1),
         .tolerance = rounding_tolerance(dtype, 2),
         .inputs = {x},
         .outputs = {x}},
        [=](const Views& v) { return Dropout{.x = v[0], .y = v[1], .p = 0.1, .key = kKey}; },
        dropout);
    add_case(
        registry,
        {.op = "dropout",
         .pass = "residual",
         .dtype = dtype,
         .shape = concat("n=", n),
         .ceiling = Ceiling::stream(2, 1),
         .tolerance = rounding_tolerance(dtype, 2),
         .inputs = {x, residual},
         .outputs = {x}},
        [=](const Views& v) {
          return DropoutResidual{.x = v[0], .residual = v[1], .y = v[2], .p = 0.1, .key = kKey};
        },
        dropout_residual);
  }
}

}  // namespace zinc::bench
