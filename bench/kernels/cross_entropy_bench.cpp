#include "bench/arrays.h"
#include "bench/kernels/all.h"
#include "kernels/cross_entropy.h"

namespace zinc::bench {
namespace {

constexpr int64_t kClasses = 50257;

struct Tensors {
  Array logits, labels, loss, lse, dloss;

  Tensors(int64_t rows, DType dtype)
      : logits(Array::uniform({rows, kClasses}, dtype, -5, 5, 1)),
        labels(Array::uniform({rows}, DType::i64, 0, static_cast<double>(kClasses), 2)),
        loss(Array::full({1}, DType::f32, 0)),
        lse(Array::full({rows}, DType::f32, 0)),
        dloss(Array::full({1}, DType::f32, 1)) {}
};

Instance make_forward(int64_t rows, DType dtype, Context& context) {
  const Tensors t(rows, dtype);
  const StreamRef stream = context.compute();
  return {.run =
              [=] {
                kernels::cross_entropy_forward(
                    {.logits = t.logits, .labels = t.labels, .loss = t.loss, .lse = t.lse}, stream);
                stream->synchronize();
              },
          .verify =
              [=] {
                const Array logits = Array::converted(t.logits, DType::f64);
                const Array loss = Array::full({1}, DType::f64, 0);
                const Array lse = Array::full({rows}, DType::f64, 0);
                kernels::cross_entropy_forward(
                    {.logits = logits, .labels = t.labels, .loss = loss, .lse = lse}, stream);
                // Sums of 50257 terms of one sign in f32.
                return Deviation{relative_l2({{t.lse, lse}, {t.loss, loss}}), 16 * 0x1p-24};
              }};
}

// In place, so each run turns logits into something else: verified on a copy.
Instance make_backward(int64_t rows, DType dtype, Context& context) {
  const Tensors t(rows, dtype);
  const StreamRef stream = context.compute();
  kernels::cross_entropy_forward(
      {.logits = t.logits, .labels = t.labels, .loss = t.loss, .lse = t.lse}, stream);
  const auto backward = [=](const View& logits, const ConstView& lse, const ConstView& dloss) {
    kernels::cross_entropy_backward(
        {.logits = logits, .labels = t.labels, .lse = lse, .dloss = dloss, .dlogits = logits},
        stream);
    stream->synchronize();
  };
  return {.run = [=] { backward(t.logits, t.lse, t.dloss); },
          .verify =
              [=] {
                const Array fresh = Tensors(rows, dtype).logits;
                const Array expected = Array::converted(fresh, DType::f64);
                backward(fresh, t.lse, t.dloss);
                backward(expected, Array::converted(t.lse, DType::f64),
                         Array::converted(t.dloss, DType::f64));
                const double rounding = dtype == DType::bf16 ? 0x1p-9 : 0x1p-24;
                return Deviation{relative_l2({{fresh, expected}}), rounding + 32 * 0x1p-24};
              }};
}

}  // namespace

void add_cross_entropy_benches(Registry& registry) {
  const int64_t rows = registry.rows() / 32;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const int64_t bytes = rows * kClasses * size_of(dtype);
    const std::string shape = concat("rows=", rows, ",classes=", kClasses);
    registry.add({.op = "cross_entropy",
                  .pass = "forward",
                  .dtype = dtype,
                  .shape = shape,
                  .cost = {.bytes_read = bytes, .flops = 4 * rows * kClasses},
                  .ceiling = Ceiling::stream(1, 0),
                  .make = [=](Context& context) { return make_forward(rows, dtype, context); }});
    registry.add(
        {.op = "cross_entropy",
         .pass = "backward",
         .dtype = dtype,
         .shape = shape,
         .cost = {.bytes_read = bytes, .bytes_written = bytes, .flops = 3 * rows * kClasses},
         .ceiling = Ceiling::stream(0, 0, 1),
         .make = [=](Context& context) { return make_backward(rows, dtype, context); }});
  }
}

}  // namespace zinc::bench
