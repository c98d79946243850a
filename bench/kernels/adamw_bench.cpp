#include "kernels/adamw.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_adamw_benches(Registry& registry) {
  const int64_t n = 1 << 23;
  for (const DType gradient : kBenchDTypes) {
    const bool copies = gradient == DType::bf16;
    const Operand state{.shape = {n}, .dtype = DType::f32};
    const Operand second{.shape = {n}, .dtype = DType::f32, .low = 0.01, .high = 1.0, .seed = 3};
    std::vector<Operand> outputs;
    if (copies) outputs.push_back({.shape = {n}, .dtype = DType::bf16});
    add_case(
        registry,
        {.op = "adamw",
         .pass = "step",
         .dtype = gradient,
         .shape = concat("n=", n, copies ? ",copy_out=bf16" : ""),
         // In units of arrays of f32: the 16-bit gradient and copy are half of one each.
         .ceiling = copies ? Ceiling::stream(1, 0, 3) : Ceiling::stream(1, 0, 3),
         .tolerance =
             copies ? rounding_tolerance(DType::bf16, 32) : rounding_tolerance(DType::f32, 32),
         .inputs = {{.shape = {n}, .dtype = gradient, .seed = 4}},
         .updates = {state, state, second},
         .outputs = outputs},
        [=](const Views& v) {
          return AdamW{.weights = v[1],
                       .gradient = v[0],
                       .m = v[2],
                       .v = v[3],
                       .model_weights = copies ? v[4] : View(),
                       .step = 10,
                       .weight_decay = 0.1};
        },
        adamw);
  }
}

}  // namespace zinc::bench
