#include "autograd/ops/unary.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"

namespace zinc::autograd {
namespace {

using kernels::UnaryOp;

class UnaryNode final : public Node {
 public:
  explicit UnaryNode(UnaryOp op) : op_(op) {}
  std::string_view name() const override { return kernels::name_of(op_); }

  // dx = dy * op'(x), into the memory of dy where nobody else sees it
  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    const Tensor x = pass.take_saved(0);
    Tensor dx = dy.is_sole_owner() ? dy : pass.gradient_memory(0);
    kernels::unary_backward({.op = op_, .x = x.view(), .dy = dy.view(), .dx = dx.view()},
                            compute_stream());
    dy = {};
    pass.give(0, std::move(dx));
  }

 private:
  UnaryOp op_;
};

}  // namespace

Tensor unary(UnaryOp op, const Tensor& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::unary({.op = op, .x = x.view(), .y = y.view()}, compute_stream());
  if (needs_gradient(x)) {
    auto node = make_node<UnaryNode>(op);
    node->add_input(x);
    node->save(x);
    node->set_output(y);
  }
  return y;
}

Tensor neg(const Tensor& x) { return unary(UnaryOp::neg, x); }
Tensor abs(const Tensor& x) { return unary(UnaryOp::abs, x); }
Tensor square(const Tensor& x) { return unary(UnaryOp::square, x); }
Tensor sqrt(const Tensor& x) { return unary(UnaryOp::sqrt, x); }
Tensor rsqrt(const Tensor& x) { return unary(UnaryOp::rsqrt, x); }
Tensor reciprocal(const Tensor& x) { return unary(UnaryOp::reciprocal, x); }
Tensor exp(const Tensor& x) { return unary(UnaryOp::exp, x); }
Tensor log(const Tensor& x) { return unary(UnaryOp::log, x); }
Tensor tanh(const Tensor& x) { return unary(UnaryOp::tanh, x); }
Tensor sigmoid(const Tensor& x) { return unary(UnaryOp::sigmoid, x); }
Tensor relu(const Tensor& x) { return unary(UnaryOp::relu, x); }
Tensor silu(const Tensor& x) { return unary(UnaryOp::silu, x); }

}  // namespace zinc::autograd
