#include "autograd/ops/expand.h"

#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/reshape.h"
#include "kernels/broadcast.h"
#include "kernels/unary.h"

namespace zinc::autograd {
namespace {

class ExpandNode final : public Node {
 public:
  explicit ExpandNode(const Shape& shape) : shape_(shape) {}
  std::string_view name() const override { return "expand"; }
  void backward(BackwardPass& pass) override {
    pass.give(0, sum_to(pass.take_gradient(0), shape_));
  }

 private:
  Shape shape_;
};

}  // namespace

Tensor expand(const Tensor& x, const Shape& shape) {
  require(is_float(x.dtype()), "expand: x must be a float, not ", x.dtype());
  require(kernels::is_broadcastable(x.shape(), shape), "expand: ", x.shape(),
          " does not stretch to ", shape);
  Tensor y = Tensor::empty(shape, x.dtype());
  // Adding -0 changes nothing, a zero's sign neither.
  kernels::unary(
      {.op = kernels::UnaryOp::affine, .x = x.view(), .y = y.view(), .p = 1.0, .q = -0.0},
      compute_stream());
  if (needs_gradient(x)) {
    auto node = make_node<ExpandNode>(x.shape());
    node->add_input(x);
    node->set_output(y);
  }
  return y;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  require(kernels::is_broadcastable(shape, x.shape()), "sum_to: ", shape, " does not stretch to ",
          x.shape());
  std::vector<int> dims;
  for (int d = 0; d < x.rank(); ++d) {
    const int own = d - (x.rank() - shape.rank());
    if (x.dim(d) != 1 && (own < 0 || shape[own] == 1)) dims.push_back(d);
  }
  const Tensor sums = dims.empty() ? x : sum(x, Dims(std::move(dims)));
  return sums.shape() == shape ? sums : reshape(sums, shape);
}

}  // namespace zinc::autograd
