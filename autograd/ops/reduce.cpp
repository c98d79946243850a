#include "autograd/ops/reduce.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"

namespace zinc::autograd {
namespace {

using kernels::ReduceOp;

// Saved: x, for max.
class ReduceNode final : public Node {
 public:
  ReduceNode(ReduceOp op, ReduceOver over) : op_(op), over_(over) {}
  std::string_view name() const override { return kernels::name_of(op_); }

  void backward(BackwardPass& pass) override {
    const Tensor dy = pass.take_gradient(0);
    const Tensor x = op_ == ReduceOp::max ? pass.take_saved(0) : Tensor();
    Tensor dx = pass.gradient_memory(0);
    kernels::reduce_backward({.op = op_,
                              .over = over_,
                              .dy = dy.view(),
                              .x = x.defined() ? ConstView(x.view()) : ConstView(),
                              .dx = dx.view()},
                             compute_stream());
    pass.give(0, std::move(dx));
  }

 private:
  ReduceOp op_;
  ReduceOver over_;
};

Shape reduced_shape(const Tensor& x, ReduceOver over) {
  Shape shape;
  if (over == ReduceOver::leading) shape.push_back(x.dim(-1));
  if (over == ReduceOver::last) {
    for (int d = 0; d + 1 < x.rank(); ++d) shape.push_back(x.dim(d));
  }
  return shape;
}

Tensor reduce(ReduceOp op, const Tensor& x, ReduceOver over) {
  require(x.rank() >= 1, kernels::name_of(op), ": x must have at least one dimension");
  Tensor y = Tensor::empty(reduced_shape(x, over), x.dtype());
  kernels::reduce({.op = op, .over = over, .x = x.view(), .y = y.view()}, compute_stream());
  if (needs_gradient(x)) {
    auto node = make_node<ReduceNode>(op, over);
    node->add_input(x);
    if (op == ReduceOp::max) node->save(x);
    node->set_output(y);
  }
  return y;
}

}  // namespace

Tensor sum(const Tensor& x, ReduceOver over) { return reduce(ReduceOp::sum, x, over); }
Tensor mean(const Tensor& x, ReduceOver over) { return reduce(ReduceOp::mean, x, over); }
Tensor max(const Tensor& x, ReduceOver over) { return reduce(ReduceOp::max, x, over); }

}  // namespace zinc::autograd
