#include "autograd/ops/gelu.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"

namespace zinc::autograd {
namespace {

class GeluNode final : public Node {
 public:
  explicit GeluNode(GeluKind kind) : kind_(kind) {}
  std::string_view name() const override { return "gelu"; }

  // dx = dy * gelu'(x)
  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    const Tensor x = pass.take_saved(0);
    Tensor dx = dy.is_sole_owner() ? dy : pass.gradient_memory(0);
    kernels::gelu_backward({.kind = kind_, .x = x.view(), .dy = dy.view(), .dx = dx.view()},
                           compute_stream());
    dy = {};
    pass.give(0, std::move(dx));
  }

  bool can_remake(int) const override { return true; }
  Tensor remake(int) override {
    const Tensor x = saved()[0].restore();
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    kernels::gelu_forward({.kind = kind_, .x = x.view(), .y = y.view()}, compute_stream());
    return y;
  }

 private:
  GeluKind kind_;
};

}  // namespace

Tensor gelu(const Tensor& x, GeluKind kind) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::gelu_forward({.kind = kind, .x = x.view(), .y = y.view()}, compute_stream());
  if (needs_gradient(x)) {
    auto node = make_node<GeluNode>(kind);
    node->add_input(x);
    node->save(x);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
