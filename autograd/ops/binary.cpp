#include "autograd/ops/binary.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"

namespace zinc::autograd {
namespace {

using kernels::BinaryOp;

bool is_linear(BinaryOp op) { return op == BinaryOp::add || op == BinaryOp::sub; }

class BinaryNode final : public Node {
 public:
  BinaryNode(BinaryOp op, const Tensor& a, const Tensor& b)
      : op_(op), a_shape_(a.shape()), b_shape_(b.shape()) {}
  std::string_view name() const override { return kernels::name_of(op_); }

  void backward(BackwardPass& pass) override {
    if (is_linear(op_)) {
      backward_of_sum(pass);
    } else {
      backward_of_product(pass);
    }
  }

 private:
  // da = dy; db = +-dy, summed over the dimensions in which b was broadcast
  void backward_of_sum(BackwardPass& pass) {
    Tensor dy = pass.take_gradient(0);
    if (pass.needs(1)) {
      if (op_ == BinaryOp::add && b_shape_ == a_shape_) {
        pass.give(1, dy);
      } else {
        Tensor db = pass.gradient_memory(1);
        // The kernel takes b's shape from db's.
        kernels::binary_backward({.op = op_, .b = db.view(), .dy = dy.view(), .db = db.view()},
                                 compute_stream());
        pass.give(1, std::move(db));
      }
    }
    if (pass.needs(0)) pass.give(0, std::move(dy));
  }

  void backward_of_product(BackwardPass& pass) {
    Tensor dy = pass.take_gradient(0);
    const Tensor a = pass.take_saved(0);
    const Tensor b = pass.take_saved(1);
    Tensor da;
    Tensor db;
    if (pass.needs(1)) db = pass.gradient_memory(1);
    if (pass.needs(0)) da = !db.defined() && dy.is_sole_owner() ? dy : pass.gradient_memory(0);
    kernels::binary_backward({.op = op_,
                              .a = a.view(),
                              .b = b.view(),
                              .dy = dy.view(),
                              .da = da.defined() ? da.view() : View(),
                              .db = db.defined() ? db.view() : View()},
                             compute_stream());
    dy = {};
    if (db.defined()) pass.give(1, std::move(db));
    if (da.defined()) pass.give(0, std::move(da));
  }

  BinaryOp op_;
  Shape a_shape_;
  Shape b_shape_;
};

bool is_broadcast_over(const Shape& a, const Shape& b) {
  if (b.numel() == 1) return true;
  for (int d = 1; d <= b.rank(); ++d) {
    if (d > a.rank() || b.dim(-d) != a.dim(-d)) return false;
  }
  return true;
}

}  // namespace

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  require(a.dtype() == b.dtype(), kernels::name_of(op), ": dtypes differ: ", a.dtype(), " vs ",
          b.dtype(), "; cast() one of them");
  if (b.rank() > a.rank() || (b.rank() == a.rank() && b.numel() > a.numel())) {
    require(op != BinaryOp::sub && op != BinaryOp::div, kernels::name_of(op),
            ": only the second argument is broadcast: ", a.shape(), " vs ", b.shape());
    return binary(op, b, a);
  }
  require(is_broadcast_over(a.shape(), b.shape()), kernels::name_of(op), ": ", b.shape(),
          " is neither the shape ", a.shape(), " nor its last dimensions nor one element");
  Tensor y = Tensor::empty(a.shape(), a.dtype());
  kernels::binary({.op = op, .a = a.view(), .b = b.view(), .y = y.view()}, compute_stream());
  if (needs_gradient(a, b)) {
    auto node = make_node<BinaryNode>(op, a, b);
    node->add_input(a);
    node->add_input(b);
    if (!is_linear(op)) {
      node->save(a);
      node->save(b);
    }
    node->set_output(y);
  }
  return y;
}

Tensor add(const Tensor& a, const Tensor& b) { return binary(BinaryOp::add, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary(BinaryOp::sub, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary(BinaryOp::mul, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary(BinaryOp::div, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::max, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::min, a, b); }

}  // namespace zinc::autograd
