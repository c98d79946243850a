#include "kernels/gelu.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_gelu_benches(Registry& registry) {
  const int64_t n = 1 << 25;
  for (const GeluKind kind : {GeluKind::tanh, GeluKind::erf}) {
    for (const DType dtype : kBenchDTypes) {
      const Operand x{.shape = {n}, .dtype = dtype, .low = -4.0, .high = 4.0};
      const Operand dy{.shape = {n}, .dtype = dtype, .seed = 2};
      const std::string shape = concat("n=", n, kind == GeluKind::tanh ? ",tanh" : ",erf");
      add_case(
          registry,
          {.op = "gelu",
           .dtype = dtype,
           .shape = shape,
           .ceiling = Ceiling::stream(1, 1),
           .tolerance = rounding_tolerance(dtype, 16),
           .inputs = {x},
           .outputs = {x}},
          [=](const Views& v) { return GeluForward{.kind = kind, .x = v[0], .y = v[1]}; },
          gelu_forward);
      add_case(
          registry,
          {.op = "gelu",
           .pass = "backward",
           .dtype = dtype,
           .shape = shape,
           .ceiling = Ceiling::stream(2, 1),
           .tolerance = rounding_tolerance(dtype, 32),
           .inputs = {x, dy},
           .outputs = {x}},
          [=](const Views& v) {
            return GeluBackward{.kind = kind, .x = v[0], .dy = v[1], .dx = v[2]};
          },
          gelu_backward);
    }
  }
}

}  // namespace zinc::bench
