#include "autograd/ops/scale.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/scale.h"

namespace zinc::autograd {
namespace {

class ScaleNode final : public Node {
 public:
  explicit ScaleNode(double factor) : factor_(factor) {}
  std::string_view name() const override { return "scale"; }

  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    Tensor dx = dy.is_sole_owner() ? dy : pass.gradient_memory(0);
    kernels::scale({.x = dy.view(), .factor = factor_, .device_factor = {}, .y = dx.view()},
                   compute_stream());
    dy = {};
    pass.give(0, std::move(dx));
  }

 private:
  double factor_;
};

}  // namespace

Tensor scale(const Tensor& x, double factor, std::string_view called) {
  require(is_float(x.dtype()), called, ": x must be a float, not ", x.dtype(), "; cast() it");
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::scale({.x = x.view(), .factor = factor, .device_factor = {}, .y = y.view()},
                 compute_stream());
  if (needs_gradient(x)) {
    auto node = make_node<ScaleNode>(factor);
    node->add_input(x);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
