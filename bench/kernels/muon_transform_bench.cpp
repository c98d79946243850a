#include <algorithm>

#include "bench/arrays.h"
#include "bench/kernels/all.h"
#include "optim/muon.h"

namespace zinc::bench {
namespace {

// The matrix is bf16, and stays bounded however often it is transformed.
Instance make_instance(const Shape& shape, Context& context) {
  const Array matrix = Array::uniform(shape, DType::bf16, -1, 1, 1);
  const Array before = Array::copy_of(matrix);
  const StreamRef stream = context.compute();
  const auto run = [=] {
    optim::Muon(optim::MuonOptions{}).transform({.direction = matrix.view()}, {}, stream);
  };
  // Against f32: f64 would take minutes. The tolerance is that of tests/optim/muon_test.cpp.
  const auto verify = [=] {
    const Array expected = Array::converted(before, DType::f32);
    const StreamRef compute = Context::current().compute();
    optim::Muon(optim::MuonOptions{}).transform({.direction = expected.view()}, {}, compute);
    compute->synchronize();
    return Deviation{.relative_l2 = relative_l2({{matrix, expected}}), .tolerance = 32 * 0x1p-9};
  };
  return {.run = run, .verify = verify};
}

}  // namespace

// The iteration of Muon on matrices of a layer, against the rate of its first product.
void add_muon_transform_benches(Registry& registry) {
  const int64_t C = registry.model().hidden;
  const int64_t up = registry.model().intermediate;
  for (const Shape& shape : {Shape{C, C}, Shape{up, C}, Shape{C, up}}) {
    const int64_t rows = shape[0], cols = shape[1];
    const bool tall = rows > cols;
    const int64_t n = std::min(rows, cols);
    registry.add({.op = "muon_transform",
                  .pass = "forward",
                  .dtype = DType::bf16,
                  .shape = str("rows=", rows, ",cols=", cols),
                  .cost = {.bytes_read = shape.numel() * 2,
                           .bytes_written = shape.numel() * 2,
                           .flops = optim::Muon(optim::MuonOptions{}).flops(rows, cols)},
                  .ceiling = Ceiling::gemm(n, n, std::max(rows, cols), DType::bf16, tall, !tall),
                  .make = [shape](Context& context) { return make_instance(shape, context); }});
  }
}

}  // namespace zinc::bench
