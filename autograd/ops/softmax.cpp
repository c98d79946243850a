#include "autograd/ops/softmax.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/softmax.h"

namespace zinc::autograd {
namespace {

class SoftmaxNode final : public Node {
 public:
  std::string_view name() const override { return "softmax"; }

  // dx = y * (dy - sum(dy * y))
  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    const Tensor y = pass.take_saved(0);
    Tensor dx = dy.is_sole_owner() ? dy : pass.gradient_memory(0);
    kernels::softmax_backward({.dy = dy.view(), .y = y.view(), .dx = dx.view()}, compute_stream());
    dy = {};
    pass.give(0, std::move(dx));
  }
};

}  // namespace

Tensor softmax(const Tensor& x) {
  require(x.rank() >= 1, "softmax: x must have at least one dimension");
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::softmax_forward({.x = x.view(), .y = y.view()}, compute_stream());
  if (needs_gradient(x)) {
    auto node = make_node<SoftmaxNode>();
    node->add_input(x);
    node->save(y);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
