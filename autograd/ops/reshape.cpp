#include "autograd/ops/reshape.h"

#include "autograd/backward_pass.h"
#include "autograd/node.h"

namespace zinc::autograd {
namespace {

class ReshapeNode final : public Node {
 public:
  explicit ReshapeNode(const Shape& shape) : shape_(shape) {}
  std::string_view name() const override { return "reshape"; }
  void backward(BackwardPass& pass) override {
    pass.give(0, pass.take_gradient(0).reshape_view(shape_));
  }

 private:
  Shape shape_;
};

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  Tensor y = x.reshape_view(shape);
  if (needs_gradient(x)) {
    auto node = make_node<ReshapeNode>(x.shape());
    node->add_input(x);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
