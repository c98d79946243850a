#include "autograd/ops/cumsum.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/dims.h"
#include "autograd/node.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/permute.h"
#include "kernels/cumsum.h"

namespace zinc::autograd {
namespace {

class CumsumNode final : public Node {
 public:
  std::string_view name() const override { return "cumsum"; }
  // dx[c] = dy[c] + ... + dy[last]
  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    Tensor dx = dy.is_sole_owner() ? dy : pass.gradient_memory(0);
    kernels::cumsum({.x = dy.view(), .reverse = true, .y = dx.view()}, compute_stream());
    dy = {};
    pass.give(0, std::move(dx));
  }
};

}  // namespace

Tensor cumsum(const Tensor& x, int dim) {
  require(is_float(x.dtype()), "cumsum: x must be a float, not ", x.dtype());
  const int d = checked_dim("cumsum", dim, x.shape());
  if (d + 1 != x.rank()) return transpose(cumsum(transpose(x, d, -1)), d, -1);
  const Tensor dense = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::cumsum({.x = dense.view(), .y = y.view()}, compute_stream());
  if (needs_gradient(dense)) {
    auto node = make_node<CumsumNode>();
    node->add_input(dense);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
