#include "kernels/unary.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_unary_benches(Registry& registry) {
  const int64_t n = 1 << 25;
  for (const UnaryOp op :
       {UnaryOp::relu, UnaryOp::exp, UnaryOp::log, UnaryOp::tanh, UnaryOp::silu}) {
    for (const DType dtype : kBenchDTypes) {
      const Operand x{.shape = {n}, .dtype = dtype, .low = 0.25, .high = 4.0};
      const Operand dy{.shape = {n}, .dtype = dtype, .seed = 2};
      const std::string shape = concat("n=", n, ",", name_of(op));
      add_case(
          registry,
          {.op = "unary",
           .dtype = dtype,
           .shape = shape,
           .ceiling = Ceiling::stream(1, 1),
           .tolerance = rounding_tolerance(dtype, 8),
           .inputs = {x},
           .outputs = {x}},
          [=](const Views& v) { return Unary{.op = op, .x = v[0], .y = v[1]}; }, unary);
      add_case(
          registry,
          {.op = "unary",
           .pass = "backward",
           .dtype = dtype,
           .shape = shape,
           .ceiling = Ceiling::stream(2, 1),
           .tolerance = rounding_tolerance(dtype, 16),
           .inputs = {x, dy},
           .outputs = {x}},
          [=](const Views& v) {
            return UnaryBackward{.op = op, .x = v[0], .dy = v[1], .dx = v[2]};
          },
          unary_backward);
    }
  }
}

}  // namespace zinc::bench
