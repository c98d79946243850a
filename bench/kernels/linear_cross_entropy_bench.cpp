// The head of a model. Percent of the ceiling: flops of the products against a bare product of
// one chunk's logits.
#include <cmath>

#include "bench/arrays.h"
#include "bench/kernels/all.h"
#include "kernels/linear_cross_entropy.h"

namespace zinc::bench {
namespace {

struct Head {
  int64_t rows = 2048, features = 768, classes = 50257;
};

struct HeadTensors {
  Array hidden, weight, labels, loss, dhidden, dweight;

  HeadTensors(const Head& head, DType dtype, bool gradient)
      : hidden(Array::uniform({head.rows, head.features}, dtype, -1, 1, 1)),
        weight(Array::uniform({head.classes, head.features}, dtype, -0.1, 0.1, 2)),
        labels(Array::uniform({head.rows}, DType::i64, 0, static_cast<double>(head.classes), 3)),
        loss(Array::full({1}, DType::f32, 0)),
        dhidden(gradient ? Shape{head.rows, head.features} : Shape{0}, dtype),
        dweight(gradient ? Shape{head.classes, head.features} : Shape{0}, dtype) {}
};

// Compares some rows of dhidden, and the loss of those rows, with the f64 path.
Deviation verify(const HeadTensors& t, const Head& head, DType dtype, bool gradient, bool narrow,
                 Context& benched) {
  constexpr int64_t kSome = 16;
  const Array hidden = Array::converted(t.hidden.view().narrow(0, 0, kSome), DType::f64);
  const Array weight = Array::converted(t.weight, DType::f64);
  const Array labels = Array::copy_of(t.labels.view().narrow(0, 0, kSome));
  const Array loss = Array::full({1}, DType::f64, 0);
  const Array dhidden({kSome, head.features}, DType::f64);
  kernels::linear_cross_entropy_with_gradient(
      {.hidden = hidden, .weight = weight, .labels = labels, .loss = loss, .dhidden = dhidden},
      Context::current().compute());
  const Array some_loss = [&] {
    const ContextScope scope(benched);
    const Array made = Array::full({1}, DType::f32, 0);
    kernels::linear_cross_entropy_forward({.hidden = t.hidden.view().narrow(0, 0, kSome),
                                           .weight = t.weight,
                                           .labels = t.labels.view().narrow(0, 0, kSome),
                                           .loss = made,
                                           .narrow_logits = narrow},
                                          benched.compute());
    return made;
  }();
  const double rounding = dtype == DType::bf16 ? 0x1p-9 : 0x1p-24;
  constexpr double kLargestLogit = 8;
  const double off = narrow ? kLargestLogit * rounding : 0.0;
  if (!gradient) return {relative_l2({{some_loss, loss}}), off + 32 * 0x1p-24};
  return {relative_l2({{t.dhidden.view().narrow(0, 0, kSome), dhidden}}),
          off + 2 * rounding + 8 * 0x1p-24 * std::sqrt(static_cast<double>(head.classes))};
}

// `narrow`: logits of 16 bits.
Instance make_instance(const Head& head, DType dtype, bool gradient, bool narrow,
                       Context& context) {
  const HeadTensors t(head, dtype, gradient);
  Context* const benched = &context;
  const StreamRef stream = context.compute();
  return {.run =
              [=] {
                if (gradient) {
                  kernels::linear_cross_entropy_with_gradient({.hidden = t.hidden,
                                                               .weight = t.weight,
                                                               .labels = t.labels,
                                                               .loss = t.loss,
                                                               .dhidden = t.dhidden,
                                                               .dweight = t.dweight,
                                                               .narrow_logits = narrow},
                                                              stream);
                } else {
                  kernels::linear_cross_entropy_forward({.hidden = t.hidden,
                                                         .weight = t.weight,
                                                         .labels = t.labels,
                                                         .loss = t.loss,
                                                         .narrow_logits = narrow},
                                                        stream);
                }
              },
          .verify = [=] { return verify(t, head, dtype, gradient, narrow, *benched); }};
}

}  // namespace

void add_linear_cross_entropy_benches(Registry& registry) {
  const Head head{.features = registry.cols(), .classes = registry.model().vocabulary};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const bool gradient : {false, true}) {
      for (const bool narrow : {false, true}) {
        if (narrow && dtype == DType::f32) continue;
        const int64_t size = size_of(dtype);
        const int64_t in = (head.rows + head.classes) * head.features * size;
        registry.add(
            {.op = "linear_cross_entropy",
             .pass = gradient ? "with-gradient" : "forward",
             .dtype = dtype,
             .shape = str("N=", head.rows, ",C=", head.features, ",V=", head.classes,
                          narrow ? ",narrow" : ""),
             .cost = {.bytes_read = in,
                      .bytes_written = gradient ? in : 4,
                      .flops = (gradient ? 3 : 1) * 2 * head.rows * head.features * head.classes},
             .ceiling = Ceiling::gemm(512, head.classes, head.features, dtype, false, true),
             .make = [=](Context& context) {
               return make_instance(head, dtype, gradient, narrow, context);
             }});
      }
    }
  }
}

}  // namespace zinc::bench
