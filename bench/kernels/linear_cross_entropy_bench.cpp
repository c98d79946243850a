// The head of gpt2-124m. Percent of the ceiling: flops of the products against a bare product of
// one chunk's logits.
#include <cmath>

#include "bench/arrays.h"
#include "bench/kernels/all.h"
#include "kernels/linear_cross_entropy.h"

namespace zinc::bench {
namespace {

constexpr int64_t kRows = 2048, kFeatures = 768, kClasses = 50257;

struct Tensors {
  Array hidden, weight, labels, loss, dhidden, dweight;

  Tensors(DType dtype, bool gradient)
      : hidden(Array::uniform({kRows, kFeatures}, dtype, -1, 1, 1)),
        weight(Array::uniform({kClasses, kFeatures}, dtype, -0.1, 0.1, 2)),
        labels(Array::uniform({kRows}, DType::i64, 0, kClasses, 3)),
        loss(Array::full({1}, DType::f32, 0)),
        dhidden(gradient ? Shape{kRows, kFeatures} : Shape{0}, dtype),
        dweight(gradient ? Shape{kClasses, kFeatures} : Shape{0}, dtype) {}
};

// Some rows of dhidden and the loss of those rows against the f64 path.
Deviation verify(const Tensors& t, DType dtype, bool gradient, StreamRef stream) {
  constexpr int64_t kSome = 16;
  const Array hidden = Array::converted(t.hidden.view().narrow(0, 0, kSome), DType::f64);
  const Array weight = Array::converted(t.weight, DType::f64);
  const Array labels = Array::copy_of(t.labels.view().narrow(0, 0, kSome));
  const Array loss = Array::full({1}, DType::f64, 0), some_loss = Array::full({1}, DType::f32, 0);
  const Array dhidden({kSome, kFeatures}, DType::f64);
  kernels::linear_cross_entropy_with_gradient(
      {.hidden = hidden, .weight = weight, .labels = labels, .loss = loss, .dhidden = dhidden},
      stream);
  kernels::linear_cross_entropy_forward({.hidden = t.hidden.view().narrow(0, 0, kSome),
                                         .weight = t.weight,
                                         .labels = labels,
                                         .loss = some_loss},
                                        stream);
  stream->synchronize();
  if (!gradient) return {relative_l2({{some_loss, loss}}), 32 * 0x1p-24};
  const double rounding = dtype == DType::bf16 ? 0x1p-9 : 0x1p-24;
  return {relative_l2({{t.dhidden.view().narrow(0, 0, kSome), dhidden}}),
          2 * rounding + 8 * 0x1p-24 * std::sqrt(static_cast<double>(kClasses))};
}

Instance make_instance(DType dtype, bool gradient, Context& context) {
  const Tensors t(dtype, gradient);
  const StreamRef stream = context.compute();
  return {.run =
              [=] {
                if (gradient) {
                  kernels::linear_cross_entropy_with_gradient({.hidden = t.hidden,
                                                               .weight = t.weight,
                                                               .labels = t.labels,
                                                               .loss = t.loss,
                                                               .dhidden = t.dhidden,
                                                               .dweight = t.dweight},
                                                              stream);
                } else {
                  kernels::linear_cross_entropy_forward(
                      {.hidden = t.hidden, .weight = t.weight, .labels = t.labels, .loss = t.loss},
                      stream);
                }
                stream->synchronize();
              },
          .verify = [=] { return verify(t, dtype, gradient, stream); }};
}

}  // namespace

void add_linear_cross_entropy_benches(Registry& registry) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const bool gradient : {false, true}) {
      const int64_t size = size_of(dtype);
      const int64_t in = (kRows + kClasses) * kFeatures * size;
      registry.add(
          {.op = "linear_cross_entropy",
           .pass = gradient ? "with-gradient" : "forward",
           .dtype = dtype,
           .shape = concat("N=", kRows, ",C=", kFeatures, ",V=", kClasses),
           .cost = {.bytes_read = in,
                    .bytes_written = gradient ? in : 4,
                    .flops = (gradient ? 3 : 1) * 2 * kRows * kFeatures * kClasses},
           .ceiling = Ceiling::gemm(512, kClasses, kFeatures, dtype, false, true),
           .make = [=](Context& context) { return make_instance(dtype, gradient, context); }});
    }
  }
}

}  // namespace zinc::bench
