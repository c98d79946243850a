#include "autograd/ops/unary.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"

namespace zinc::autograd {
namespace {

using kernels::UnaryOp;

class UnaryNode final : public Node {
 public:
  UnaryNode(UnaryOp op, double p, double q) : op_(op), p_(p), q_(q) {}
  std::string_view name() const override { return kernels::name_of(op_); }

  // dx = dy * op'(x), into the memory of dy if no other handle shares it
  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    const Tensor x = pass.take_saved(0);
    Tensor dx = dy.is_sole_owner() ? dy : pass.gradient_memory(0);
    kernels::unary_backward(
        {.op = op_, .x = x.view(), .dy = dy.view(), .dx = dx.view(), .p = p_, .q = q_},
        compute_stream());
    dy = {};
    pass.give(0, std::move(dx));
  }

  bool can_remake(int) const override { return true; }
  Tensor remake(int) override {
    const Tensor x = saved()[0].restore();
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    kernels::unary({.op = op_, .x = x.view(), .y = y.view(), .p = p_, .q = q_}, compute_stream());
    return y;
  }

 private:
  UnaryOp op_;
  double p_, q_;
};

}  // namespace

Tensor unary(UnaryOp op, const Tensor& x, double p, double q, std::string_view called) {
  require(is_float(x.dtype()), called.empty() ? kernels::name_of(op) : called,
          ": x must be a float, not ", x.dtype(), "; cast() it");
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::unary({.op = op, .x = x.view(), .y = y.view(), .p = p, .q = q}, compute_stream());
  if (needs_gradient(x)) {
    auto node = make_node<UnaryNode>(op, p, q);
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
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return unary(UnaryOp::leaky_relu, x, negative_slope);
}
Tensor silu(const Tensor& x) { return unary(UnaryOp::silu, x); }
Tensor softplus(const Tensor& x) { return unary(UnaryOp::softplus, x); }
Tensor erf(const Tensor& x) { return unary(UnaryOp::erf, x); }
Tensor affine(const Tensor& x, double factor, double summand) {
  return unary(UnaryOp::affine, x, factor, summand);
}

// Some exponents have their own op, which is faster and more exact.
Tensor pow(const Tensor& x, double exponent) {
  const auto by = [&](UnaryOp op) { return unary(op, x, exponent, 0.0, "pow"); };
  if (exponent == 2.0) return by(UnaryOp::square);
  if (exponent == 0.5) return by(UnaryOp::sqrt);
  if (exponent == -0.5) return by(UnaryOp::rsqrt);
  if (exponent == -1.0) return by(UnaryOp::reciprocal);
  return by(UnaryOp::pow);
}

Tensor clamp(const Tensor& x, double low, double high) {
  require(low <= high, "clamp: low must not exceed high: ", low, " vs ", high);
  return unary(UnaryOp::clamp, x, low, high);
}

}  // namespace zinc::autograd
