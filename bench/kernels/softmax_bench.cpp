#include <utility>
#include <vector>

#include "bench/arrays.h"
#include "bench/kernels/all.h"
#include "kernels/softmax.h"

namespace zinc::bench {
namespace {

// One rounding to the dtype; the sum and the exponentials' arguments in f32.
double tolerance(DType dtype) { return (dtype == DType::bf16 ? 0x1p-9 : 0x1p-24) + 32 * 0x1p-24; }

Instance make_forward(const Shape& shape, DType dtype, Context& context) {
  const Array x = Array::uniform(shape, dtype, -5, 5, 1);
  const Array y(shape, dtype);
  const StreamRef stream = context.compute();
  return {.run = [=] { kernels::softmax_forward({.x = x, .y = y}, stream); },
          .verify =
              [=] {
                const Array expected = Array::converted(x, DType::f64);
                kernels::softmax_forward({.x = expected, .y = expected},
                                         Context::current().compute());
                return Deviation{relative_l2({{y, expected}}), tolerance(dtype)};
              }};
}

Instance make_backward(const Shape& shape, DType dtype, Context& context) {
  const Array dy = Array::uniform(shape, dtype, -1, 1, 1);
  const Array y = Array::uniform(shape, dtype, -5, 5, 2);
  const Array dx(shape, dtype);
  const StreamRef stream = context.compute();
  kernels::softmax_forward({.x = y, .y = y}, stream);
  return {.run = [=] { kernels::softmax_backward({.dy = dy, .y = y, .dx = dx}, stream); },
          .verify =
              [=] {
                const Array expected = Array::converted(dy, DType::f64);
                const Array wide_y = Array::converted(y, DType::f64);
                kernels::softmax_backward({.dy = expected, .y = wide_y, .dx = expected},
                                          Context::current().compute());
                return Deviation{relative_l2({{dx, expected}}), tolerance(dtype)};
              }};
}

// Rows of attention scores and of logits.
std::vector<std::pair<int64_t, int64_t>> shapes_of(const Registry& registry) {
  if (registry.is_given("cols")) return {{registry.rows(), registry.cols()}};
  return {{registry.rows(), 1024},
          {registry.given("rows", registry.rows() / 32), registry.model().vocabulary}};
}

}  // namespace

void add_softmax_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const auto& [rows, cols] : shapes_of(registry)) {
      const Shape shape{rows, cols};
      const int64_t bytes = rows * cols * size_of(dtype);
      const std::string name = str("rows=", rows, ",cols=", cols);
      registry.add({.op = "softmax",
                    .pass = "forward",
                    .dtype = dtype,
                    .shape = name,
                    .cost = {.bytes_read = bytes, .bytes_written = bytes, .flops = 5 * rows * cols},
                    .ceiling = Ceiling::stream(1, 1),
                    .make = [=](Context& context) { return make_forward(shape, dtype, context); }});
      registry.add(
          {.op = "softmax",
           .pass = "backward",
           .dtype = dtype,
           .shape = name,
           .cost = {.bytes_read = 2 * bytes, .bytes_written = bytes, .flops = 4 * rows * cols},
           .ceiling = Ceiling::stream(2, 1),
           .make = [=](Context& context) { return make_backward(shape, dtype, context); }});
    }
  }
}

}  // namespace zinc::bench
