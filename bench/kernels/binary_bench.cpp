#include "kernels/binary.h"

#include "bench/kernels/all.h"
#include "bench/kernels/array_case.h"

namespace zinc::bench {

using namespace kernels;

void add_binary_benches(Registry& registry) {
  const int64_t rows = 32768, cols = 768;
  for (const DType dtype : kBenchDTypes) {
    const Operand a{.shape = {rows, cols}, .dtype = dtype};
    const Operand b{.shape = {rows, cols}, .dtype = dtype, .seed = 2};
    const Operand row{.shape = {cols}, .dtype = dtype, .seed = 3};
    const std::string shape = concat("rows=", rows, ",cols=", cols);
    add_case(
        registry,
        {.op = "binary",
         .dtype = dtype,
         .shape = concat(shape, ",add"),
         .ceiling = Ceiling::stream(2, 1),
         .tolerance = rounding_tolerance(dtype, 1),
         .inputs = {a, b},
         .outputs = {a}},
        [](const Views& v) { return Binary{.a = v[0], .b = v[1], .y = v[2]}; }, binary);
    add_case(
        registry,
        {.op = "binary",
         .dtype = dtype,
         .shape = concat(shape, ",add,row"),
         .ceiling = Ceiling::stream(1, 1),
         .tolerance = rounding_tolerance(dtype, 1),
         .inputs = {a, row},
         .outputs = {a}},
        [](const Views& v) { return Binary{.a = v[0], .b = v[1], .y = v[2]}; }, binary);
    add_case(
        registry,
        {.op = "binary",
         .pass = "backward",
         .dtype = dtype,
         .shape = concat(shape, ",mul,row"),
         .ceiling = Ceiling::stream(4, 1),  // a and dy are read for da and once more for db
         .tolerance = rounding_tolerance(dtype, 64),
         .inputs = {a, b, row},
         .outputs = {a, row}},
        [](const Views& v) {
          return BinaryBackward{
              .op = BinaryOp::mul, .a = v[0], .b = v[2], .dy = v[1], .da = v[3], .db = v[4]};
        },
        binary_backward);
  }
}

}  // namespace zinc::bench
