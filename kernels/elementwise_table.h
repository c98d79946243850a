// kernels/elementwise_table.h: every element-wise function, one line each.
//
// A line drives the enumerator and the name, the loops on vectors and in f64 on the CPU, the kernel
// on a GPU, the kernel tests of all dtypes against f64, the check of the gradient and the row of
// gradcheck. A new function: a line here, its public name in autograd/ops/unary.h or binary.h, and
// what the standard library says of it in its test.
//
// The expressions are written once for three kinds of numbers N (cpu/f64_number.h, f64;
// cpu/lane_number-inl.h, a vector of f32 lanes; cuda/number.h, an f32 of a thread). Their
// vocabulary: + - * / and the comparisons, which give masks; N(constant), which every constant
// needs; select(mask, a, b), is_nan, abs, sqrt, exp, log, log1p (of arguments in [0, 1]), tanh,
// sigmoid, erf, power; tanh_derivative, sigmoid_derivative and silu_derivative, derivatives without
// cancellation.
// clang-format off
#pragma once

#include <cstdint>

// ROW(name, value, dx, low, high, gap, p, q)
//   value, dx: of x, dy and the constants p and q of a call
//   low, high, gap, p, q: where tests call it: low <= x < high, |x| >= gap
#define ZINC_UNARY_OPS(ROW) \
  ROW(neg, -x, -dy, -4, 4, 0, 0, 0)                                                                \
  ROW(abs, abs(x), select(x == N(0), N(0), select(x < N(0), -dy, dy)), -4, 4, 0.1, 0, 0)           \
  ROW(square, x * x, dy * (x + x), -4, 4, 0, 0, 0)                                                 \
  ROW(sqrt, sqrt(x), dy * N(0.5) / sqrt(x), 0.125, 4, 0, 0, 0)                                     \
  ROW(rsqrt, N(1) / sqrt(x), dy * N(-0.5) / (x * sqrt(x)), 0.125, 4, 0, 0, 0)                      \
  ROW(reciprocal, N(1) / x, -(dy / x / x), -4, 4, 0.5, 0, 0)                                       \
  ROW(exp, exp(x), dy * exp(x), -4, 4, 0, 0, 0)                                                    \
  ROW(log, log(x), dy / x, 0.125, 4, 0, 0, 0)                                                      \
  ROW(tanh, tanh(x), dy * tanh_derivative(x), -4, 4, 0, 0, 0)                                      \
  ROW(sigmoid, sigmoid(x), dy * sigmoid_derivative(x), -4, 4, 0, 0, 0)                             \
  ROW(relu, select(x <= N(0), N(0), x), select(x > N(0), dy, N(0)), -4, 4, 0.1, 0, 0)              \
  /* p x below 0 */                                                                                \
  ROW(leaky_relu, select(x < N(0), x * p, x), select(x > N(0), dy, dy * p), -4, 4, 0.1, 0.125, 0)  \
  ROW(silu, x * sigmoid(x), dy * silu_derivative(x), -4, 4, 0, 0, 0)                               \
  /* log(1 + e^x) */                                                                               \
  ROW(softplus, select(x > N(0), x, N(0)) + select(is_nan(x), x, log1p(exp(-abs(x)))),             \
      dy * sigmoid(x), -4, 4, 0, 0, 0)                                                             \
  ROW(erf, erf(x), dy * N(1.1283791670955126) * exp(-(x * x)), -4, 4, 0, 0, 0)                     \
  /* x^p */                                                                                        \
  ROW(pow, power(x, p),                                                                            \
      select(p == N(0), N(0), dy * p * power(x, p - N(1))), 0.125, 4, 0, 2.5, 0)                   \
  /* into [p, q]; at the ends the gradient passes */                                               \
  ROW(clamp, select(x < p, p, select(x > q, q, x)),                                                \
      select(x < p, N(0), select(x > q, N(0), dy)), -4, 4, 0, -1, 1.5)                             \
  ROW(affine, x * p + q, dy * p, 0.125, 4, 0, 0.75, 2)                                             \
  ROW(over_scalar, x / p, dy / p, -4, 4, 0, 3, 0)                                                  \
  ROW(scalar_over, p / x, -(dy * (p / x) / x), -4, 4, 0.5, 2, 0)

// ROW(name, value, da, db, reads): of a, b and dy; reads: whether da or db need a or b.
// maximum and minimum: where a == b the gradient goes to a; a NaN on either side gives NaN.
#define ZINC_BINARY_OPS(ROW)                                                                         \
  ROW(add, a + b, dy, dy, false)                                                                     \
  ROW(sub, a - b, dy, -dy, false)                                                                    \
  ROW(mul, a * b, dy * b, dy * a, true)                                                              \
  ROW(div, a / b, dy / b, -(dy * (a / b)) / b, true)                                                 \
  ROW(maximum, select(is_nan(a), a, select(a >= b, a, b)), select(b > a, N(0), dy),                  \
      select(b > a, dy, N(0)), true)                                                                 \
  ROW(minimum, select(is_nan(a), a, select(a <= b, a, b)), select(b < a, N(0), dy),                  \
      select(b < a, dy, N(0)), true)

// ROW(name, value): a mask of a and b. Masks are u8: 1 where it holds, else 0.
#define ZINC_COMPARE_OPS(ROW)                                                                        \
  ROW(eq, a == b)                                                                                    \
  ROW(ne, a != b)                                                                                    \
  ROW(lt, a < b)                                                                                     \
  ROW(le, a <= b)                                                                                    \
  ROW(gt, a > b)                                                                                     \
  ROW(ge, a >= b)                                                                                    \
  ROW(logical_and, (a != N(0)) && (b != N(0)))                                                       \
  ROW(logical_or, (a != N(0)) || (b != N(0)))
// clang-format on

namespace zinc::kernels {

#define ZINC_ENUMERATOR(name, ...) name,
enum class UnaryOp : uint8_t { ZINC_UNARY_OPS(ZINC_ENUMERATOR) };
enum class BinaryOp : uint8_t { ZINC_BINARY_OPS(ZINC_ENUMERATOR) };
enum class CompareOp : uint8_t { ZINC_COMPARE_OPS(ZINC_ENUMERATOR) };
#undef ZINC_ENUMERATOR

// Whether backward needs the arguments of the forward pass.
constexpr bool reads_arguments(BinaryOp op) {
  constexpr bool kReads[] = {
#define ZINC_ROW(name, value, da, db, reads) reads,
      ZINC_BINARY_OPS(ZINC_ROW)
#undef ZINC_ROW
  };
  return kReads[static_cast<int>(op)];
}

}  // namespace zinc::kernels
