#include "autograd/ops/gather_rows.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/gather_rows.h"

namespace zinc::autograd {
namespace {

void check(std::string_view op, const Tensor& x, const Tensor& ids) {
  require(x.rank() == 2, op, ": x must be a matrix, not ", x.shape());
  require(ids.rank() == 1, op, ": ids must be a vector, not ", ids.shape());
}

// y: zeros, or the tensor that the sums are added to.
Tensor scattered(const Tensor& x, const Tensor& ids, Tensor y) {
  const Tensor workspace = Tensor::empty(Shape{kernels::scatter_add_rows_workspace_bytes(x.dim(0))},
                                         DType::u8, Label::workspace);
  kernels::scatter_add_rows(
      {.x = x.view(), .ids = ids.view(), .y = y.view(), .workspace = workspace.view()},
      compute_stream());
  return y;
}

Tensor gathered(const Tensor& x, const Tensor& ids) {
  Tensor y = Tensor::empty(Shape{ids.dim(0), x.dim(1)}, x.dtype());
  kernels::gather_rows({.x = x.view(), .ids = ids.view(), .y = y.view()}, compute_stream());
  return y;
}

class GatherRowsNode final : public Node {
 public:
  explicit GatherRowsNode(int64_t num_rows) : num_rows_(num_rows) {}
  std::string_view name() const override { return "gather_rows"; }
  void backward(BackwardPass& pass) override {
    const Tensor dy = pass.take_gradient(0);
    Tensor zeros = Tensor::zeros(Shape{num_rows_, dy.dim(1)}, dy.dtype());
    pass.give(0, scattered(dy, pass.take_saved(0), std::move(zeros)));
  }

 private:
  int64_t num_rows_;
};

// Inputs: x, and the tensor that it is added to.
class ScatterRowsNode final : public Node {
 public:
  std::string_view name() const override { return "scatter_rows"; }
  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    const Tensor ids = pass.take_saved(0);
    if (pass.needs(0)) pass.give(0, gathered(dy, ids));
    if (pass.needs(1)) pass.give(1, std::move(dy));
  }
};

}  // namespace

Tensor gather_rows(const Tensor& x, const Tensor& ids) {
  check("gather_rows", x, ids);
  Tensor y = gathered(x, ids);
  if (needs_gradient(x)) {
    auto node = make_node<GatherRowsNode>(x.dim(0));
    node->add_input(x);
    node->save(ids);
    node->set_output(y);
  }
  return y;
}

Tensor scatter_rows(const Tensor& x, const Tensor& ids, const Tensor& onto) {
  check("scatter_rows", x, ids);
  require(ids.dim(0) == x.dim(0), "scatter_rows: ", ids.dim(0), " ids for ", x.dim(0), " rows");
  require(onto.rank() == 2 && onto.dim(1) == x.dim(1), "scatter_rows: rows of shape ", x.shape(),
          " onto ", onto.shape());
  require(onto.dtype() == x.dtype(), "scatter_rows: rows of ", x.dtype(), " onto ", onto.dtype(),
          "; cast() one of them");
  Tensor y = scattered(x, ids, onto.clone());
  if (needs_gradient(x, onto)) {
    auto node = make_node<ScatterRowsNode>();
    node->add_input(x);
    node->add_input(onto);
    node->save(ids);
    node->set_output(y);
  }
  return y;
}

Tensor scatter_rows(const Tensor& x, const Tensor& ids, int64_t num_rows) {
  check("scatter_rows", x, ids);
  require(ids.dim(0) == x.dim(0), "scatter_rows: ", ids.dim(0), " ids for ", x.dim(0), " rows");
  Tensor y = scattered(x, ids, Tensor::zeros(Shape{num_rows, x.dim(1)}, x.dtype()));
  if (needs_gradient(x)) {
    auto node = make_node<ScatterRowsNode>();
    node->add_input(x);
    node->add_input(Tensor());
    node->save(ids);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
