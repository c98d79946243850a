#include "autograd/ops/where.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/ops/expand.h"
#include "kernels/broadcast.h"
#include "kernels/fill.h"
#include "kernels/select.h"

namespace zinc::autograd {
namespace {

// One side of a choice: a tensor, or a value.
struct Side {
  Tensor tensor;
  double value = 0.0;
};

// Saved: the mask. Inputs: a, b; one that is a value has no edge.
class WhereNode final : public Node {
 public:
  WhereNode(const Tensor& a, const Tensor& b) : shapes_{shape_of(a), shape_of(b)} {}
  std::string_view name() const override { return "where"; }

  void backward(BackwardPass& pass) override {
    const Tensor dy = pass.take_gradient(0);
    const Tensor mask = pass.take_saved(0);
    for (const int side : {1, 0}) {
      if (!pass.needs(side)) continue;
      Tensor terms = Tensor::empty(dy.shape(), dy.dtype());
      kernels::select({.mask = mask.view(),
                       .a = side == 0 ? ConstView(dy.view()) : ConstView(),
                       .b = side == 1 ? ConstView(dy.view()) : ConstView(),
                       .y = terms.view()},
                      compute_stream());
      pass.give(side, sum_to(terms, shapes_[side]));
    }
  }

 private:
  static Shape shape_of(const Tensor& tensor) {
    return tensor.defined() ? tensor.shape() : Shape{};
  }

  Shape shapes_[2];
};

Tensor choose(std::string_view op, const Tensor& mask, const Side& a, const Side& b) {
  require(mask.dtype() == DType::u8, op, ": the mask must be u8, not ", mask.dtype(),
          "; comparisons give one");
  Shape shape = mask.shape();
  DType dtype = DType::f32;
  for (const Side* side : {&a, &b}) {
    if (!side->tensor.defined()) continue;
    dtype = side->tensor.dtype();
    shape = kernels::broadcast_shape(op, shape, side->tensor.shape());
  }
  for (const Side* side : {&a, &b}) {
    require(side->tensor.defined() || kernels::is_value_of(dtype, side->value), op, ": ",
            side->value, " is no value of ", dtype);
  }
  if (a.tensor.defined() && b.tensor.defined()) {
    require(a.tensor.dtype() == b.tensor.dtype(), op, ": dtypes differ: ", a.tensor.dtype(), " vs ",
            b.tensor.dtype(), "; cast() one of them");
  }
  Tensor y = Tensor::empty(shape, dtype);
  kernels::select({.mask = mask.view(),
                   .a = view_or_absent(a.tensor),
                   .a_value = a.value,
                   .b = view_or_absent(b.tensor),
                   .b_value = b.value,
                   .y = y.view()},
                  compute_stream());
  if (needs_gradient(a.tensor, b.tensor)) {
    auto node = make_node<WhereNode>(a.tensor, b.tensor);
    node->add_input(a.tensor);
    node->add_input(b.tensor);
    node->save(mask);
    node->set_output(y);
  }
  return y;
}

}  // namespace

Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b) {
  return choose("where", mask, {a}, {b});
}
Tensor where(const Tensor& mask, const Tensor& a, double b) {
  return choose("where", mask, {a}, {.tensor = {}, .value = b});
}
Tensor where(const Tensor& mask, double a, const Tensor& b) {
  return choose("where", mask, {.tensor = {}, .value = a}, {b});
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  return choose("masked_fill", mask, {.tensor = {}, .value = value}, {x});
}

}  // namespace zinc::autograd
