#include "autograd/ops/value.h"

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/accumulate.h"
#include "kernels/copy.h"

namespace zinc::autograd {
namespace {

class ValueNode final : public Node {
 public:
  std::string_view name() const override { return "value"; }
  void backward(BackwardPass& pass) override {
    const Tensor dy = pass.take_gradient(0);
    const GradientTarget target = pass.weight_gradient(0);
    const Shape flat{dy.numel()};
    kernels::accumulate({.x = dy.view().reshape(flat),
                         .accumulator = target.view.reshape(flat),
                         .overwrite = !target.accumulate},
                        compute_stream());
  }
};

}  // namespace

Tensor value(const Weight& weight) {
  require(static_cast<bool>(weight), "value: the weight is absent");
  if (weight.parameter() == nullptr) return weight.tensor();
  Tensor y = Tensor::empty(weight.shape(), weight.dtype());
  {
    const WeightValue values = weight.acquire();
    kernels::copy({.x = values.view(), .y = y.view()}, compute_stream());
  }
  if (needs_gradient(weight)) {
    auto node = make_node<ValueNode>();
    node->add_weight(weight, false);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
