#include "bench/array_case.h"
#include "bench/kernels/all.h"
#include "kernels/unary.h"

namespace zinc::bench {
namespace {

// One function that is bound by memory, and those with the most arithmetic.
struct Function {
  const char* name;
  kernels::UnaryOp op;
  double p, q;
  int64_t flops;  // per element, forward
};
constexpr Function kFunctions[] = {{"unary", kernels::UnaryOp::silu, 0.0, 0.0, 4},
                                   {"unary_affine", kernels::UnaryOp::affine, 0.5, 2.0, 2},
                                   {"unary_exp", kernels::UnaryOp::exp, 0.0, 0.0, 1},
                                   {"unary_softplus", kernels::UnaryOp::softplus, 0.0, 0.0, 4},
                                   {"unary_erf", kernels::UnaryOp::erf, 0.0, 0.0, 1},
                                   {"unary_pow", kernels::UnaryOp::pow, 2.5, 0.0, 2}};

void add_function(Registry& registry, const Function& function, DType dtype) {
  const Shape shape{registry.rows(), registry.cols()};
  const int64_t bytes = shape.numel() * size_of(dtype);
  const bool positive = function.op == kernels::UnaryOp::pow;
  const ArraySpec x{.shape = shape, .low = positive ? 0.5 : -4.0, .high = 4};
  const ArraySpec out{.shape = shape, .compared = true};
  const auto [name, op, p, q, flops] = function;
  add_case(registry,
           {.op = name,
            .pass = "forward",
            .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
            .dtype = dtype,
            .ceiling = Ceiling::stream(1, 1),
            .arrays = {x, out},
            .launch =
                [op = op, p = p, q = q](const std::vector<View>& v, StreamRef stream) {
                  kernels::unary({.op = op, .x = v[0], .y = v[1], .p = p, .q = q}, stream);
                },
            .cost = {.bytes_read = bytes, .bytes_written = bytes, .flops = flops * shape.numel()}});
  const ArraySpec dy{.shape = shape, .low = -1, .high = 1};
  add_case(
      registry,
      {.op = name,
       .pass = "backward",
       .shape = str("rows=", registry.rows(), ",cols=", registry.cols()),
       .dtype = dtype,
       .ceiling = Ceiling::stream(2, 1),
       .arrays = {x, dy, out},
       .launch =
           [op = op, p = p, q = q](const std::vector<View>& v, StreamRef stream) {
             kernels::unary_backward({.op = op, .x = v[0], .dy = v[1], .dx = v[2], .p = p, .q = q},
                                     stream);
           },
       .cost = {
           .bytes_read = 2 * bytes, .bytes_written = bytes, .flops = (flops + 2) * shape.numel()}});
}

}  // namespace

void add_unary_benches(Registry& registry) {
  for (const Function& function : kFunctions) {
    for (const DType dtype : {DType::bf16, DType::f32}) add_function(registry, function, dtype);
  }
}

}  // namespace zinc::bench
