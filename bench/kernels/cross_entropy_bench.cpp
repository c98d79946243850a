#include <algorithm>

#include "bench/arrays.h"
#include "bench/kernels/all.h"
#include "kernels/cross_entropy.h"

namespace zinc::bench {
namespace {

constexpr uint64_t kLogitsSeed = 1;

struct LossTensors {
  Array logits, labels, loss, lse, dloss;

  LossTensors(int64_t rows, int64_t classes, DType dtype)
      : logits(Array::uniform({rows, classes}, dtype, -5, 5, kLogitsSeed)),
        labels(Array::uniform({rows}, DType::i64, 0, static_cast<double>(classes), 2)),
        loss(Array::full({1}, DType::f32, 0)),
        lse(Array::full({rows}, DType::f32, 0)),
        dloss(Array::full({1}, DType::f32, 1)) {}
};

Instance make_forward(int64_t rows, int64_t classes, DType dtype, Context& context) {
  const LossTensors t(rows, classes, dtype);
  const StreamRef stream = context.compute();
  return {
      .run =
          [=] {
            kernels::cross_entropy_forward(
                {.logits = t.logits, .labels = t.labels, .loss = t.loss, .lse = t.lse}, stream);
          },
      .verify =
          [=] {
            const Array logits = Array::converted(t.logits, DType::f64);
            const Array loss = Array::full({1}, DType::f64, 0);
            const Array lse = Array::full({rows}, DType::f64, 0);
            kernels::cross_entropy_forward(
                {.logits = logits, .labels = Array::copy_of(t.labels), .loss = loss, .lse = lse},
                Context::current().compute());
            // Sums of as many terms as classes of one sign in f32.
            return Deviation{relative_l2({{t.lse, lse}, {t.loss, loss}}), 16 * 0x1p-24};
          }};
}

// The pass works in place, so each run overwrites the logits: it is verified on a copy.
Instance make_backward(int64_t rows, int64_t classes, DType dtype, Context& context) {
  const LossTensors t(rows, classes, dtype);
  const StreamRef stream = context.compute();
  kernels::cross_entropy_forward(
      {.logits = t.logits, .labels = t.labels, .loss = t.loss, .lse = t.lse}, stream);
  const auto backward = [](const View& logits, const ConstView& labels, const ConstView& lse,
                           const ConstView& dloss) {
    kernels::cross_entropy_backward(
        {.logits = logits, .labels = labels, .lse = lse, .dloss = dloss, .dlogits = logits},
        Context::current().compute());
  };
  Context* const benched = &context;
  return {.run = [=] { backward(t.logits, t.labels, t.lse, t.dloss); },
          .verify =
              [=] {
                const Array fresh = [&] {
                  const ContextScope scope(*benched);
                  const Array logits = LossTensors(rows, classes, dtype).logits;
                  backward(logits, t.labels, t.lse, t.dloss);
                  return logits;
                }();
                const Array expected = Array::converted(
                    Array::uniform({rows, classes}, dtype, -5, 5, kLogitsSeed), DType::f64);
                backward(expected, Array::copy_of(t.labels), Array::converted(t.lse, DType::f64),
                         Array::converted(t.dloss, DType::f64));
                const double rounding = dtype == DType::bf16 ? 0x1p-9 : 0x1p-24;
                return Deviation{relative_l2({{fresh, expected}}), rounding + 32 * 0x1p-24};
              }};
}

}  // namespace

void add_cross_entropy_benches(Registry& registry) {
  const int64_t classes = registry.given("classes", registry.model().vocabulary);
  const int64_t rows = registry.given(
      "rows", std::max<int64_t>(registry.rows() * registry.cols() / 768 / 32 * 50257 / classes, 1));
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const int64_t bytes = rows * classes * size_of(dtype);
    const std::string shape = str("rows=", rows, ",classes=", classes);
    registry.add(
        {.op = "cross_entropy",
         .pass = "forward",
         .dtype = dtype,
         .shape = shape,
         .cost = {.bytes_read = bytes, .flops = 4 * rows * classes},
         .ceiling = Ceiling::stream(1, 0),
         .make = [=](Context& context) { return make_forward(rows, classes, dtype, context); }});
    registry.add(
        {.op = "cross_entropy",
         .pass = "backward",
         .dtype = dtype,
         .shape = shape,
         .cost = {.bytes_read = bytes, .bytes_written = bytes, .flops = 3 * rows * classes},
         .ceiling = Ceiling::stream(0, 0, 1),
         .make = [=](Context& context) { return make_backward(rows, classes, dtype, context); }});
  }
}

}  // namespace zinc::bench
