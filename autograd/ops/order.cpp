#include "autograd/ops/order.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/dims.h"
#include "autograd/node.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/permute.h"
#include "kernels/argmax.h"
#include "kernels/flat_index.h"
#include "kernels/gather_rows.h"
#include "kernels/sort.h"

namespace zinc::autograd {
namespace {

// Saved: indices. No two of a row are the same.
class OrderNode final : public Node {
 public:
  OrderNode(const Shape& shape) : shape_(shape) {}
  std::string_view name() const override { return "sort"; }

  void backward(BackwardPass& pass) override {
    const Tensor dy = pass.take_gradient(0);
    const Tensor indices = pass.take_saved(0);
    Tensor dx = Tensor::zeros(shape_, dy.dtype());
    if (dy.numel() > 0) {
      const Shape rows{shape_.rows(), dy.dim(-1), 1};
      const Tensor flat = Tensor::empty(rows, DType::i64);
      kernels::flat_index({.index = indices.view().reshape(rows),
                           .extent = shape_.cols(),
                           .flat = flat.view(),
                           .op = "sort"},
                          compute_stream());
      kernels::scatter_rows({.x = dy.view().reshape(Shape{dy.numel(), 1}),
                             .ids = flat.view().reshape(Shape{dy.numel()}),
                             .y = dx.view().reshape(Shape{dx.numel(), 1})},
                            compute_stream());
    }
    pass.give(0, std::move(dx));
  }

 private:
  Shape shape_;
};

Ordered ordered(std::string_view op, const Tensor& x, int64_t k, bool descending) {
  require(x.rank() >= 1, op, ": x must have at least one dimension");
  require(is_float(x.dtype()), op, ": x must be a float, not ", x.dtype());
  require(k >= 0 && k <= x.dim(-1), op, ": ", k, " of the last dimension of shape ", x.shape());
  Shape shape = x.shape();
  shape.set(x.rank() - 1, k);
  Ordered result{Tensor::empty(shape, x.dtype()), Tensor::empty(shape, DType::i64)};
  {
    const Tensor dense = contiguous(x.detach());
    const Shape matrix{x.shape().rows(), x.dim(-1)};
    const Shape first{x.shape().rows(), k};
    const int64_t bytes = kernels::sort_workspace_bytes(matrix[0], matrix[1], x.device().kind);
    const Tensor workspace = Tensor::empty(Shape{bytes}, DType::u8, Label::workspace);
    kernels::sort({.x = dense.view().reshape(matrix),
                   .descending = descending,
                   .values = result.values.view().reshape(first),
                   .indices = result.indices.view().reshape(first),
                   .workspace = workspace.view()},
                  compute_stream());
  }
  if (needs_gradient(x)) {
    auto node = make_node<OrderNode>(x.shape());
    node->add_input(x);
    node->save(result.indices);
    node->set_output(result.values);
  }
  return result;
}

Tensor place_of_best(std::string_view op, const Tensor& x, int dim, bool keepdim, bool smallest) {
  require(is_float(x.dtype()), op, ": x must be a float, not ", x.dtype());
  const int d = checked_dim(op, dim, x.shape());
  require(x.dim(d) > 0, op, ": no place in dimension ", dim, " of shape ", x.shape());
  std::vector<int> order;
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != d) order.push_back(i);
    if (i != d || keepdim) shape.push_back(i == d ? 1 : x.dim(i));
  }
  order.push_back(d);
  const Tensor last = d + 1 == x.rank() ? contiguous(x.detach()) : permute(x.detach(), order);
  const int64_t rows = last.numel() / x.dim(d);
  Tensor y = Tensor::empty(Shape{rows}, DType::i64);
  kernels::argmax(
      {.x = last.view().reshape(Shape{rows, x.dim(d)}), .smallest = smallest, .y = y.view()},
      compute_stream());
  return y.reshape_view(shape);
}

}  // namespace

Ordered sort(const Tensor& x, bool descending) {
  return ordered("sort", x, x.rank() == 0 ? 0 : x.dim(-1), descending);
}
Ordered topk(const Tensor& x, int64_t k, bool largest) { return ordered("topk", x, k, largest); }

Tensor argmax(const Tensor& x, int dim, bool keepdim) {
  return place_of_best("argmax", x, dim, keepdim, false);
}
Tensor argmin(const Tensor& x, int dim, bool keepdim) {
  return place_of_best("argmin", x, dim, keepdim, true);
}

}  // namespace zinc::autograd
