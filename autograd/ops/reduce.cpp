#include "autograd/ops/reduce.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/permute.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/unary.h"
#include "kernels/checks.h"

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

// The operand of a reduction along `dims`: x as [rest..., elements] or [elements, rest...], reduced
// over one end, and the shape of the result.
struct Reduced {
  Tensor matrix;
  ReduceOver over;
  Shape shape;
};

// `keepdim`: extents of 1 stand in the places of `dims`.
Reduced gather_dims(std::string_view op, const Tensor& x, const Dims& dims, bool keepdim) {
  const std::vector<int> along = dims.of(op, x.shape());
  require(!along.empty(), op, ": no dimension is named");
  const auto is_along = [&](int d) { return std::ranges::find(along, d) != along.end(); };
  std::vector<int> order;
  Shape shape;
  int64_t rest = 1;
  int64_t elements = 1;
  for (int d = 0; d < x.rank(); ++d) {
    if (is_along(d)) {
      elements *= x.dim(d);
      if (keepdim) shape.push_back(1);
      continue;
    }
    order.push_back(d);
    rest *= x.dim(d);
    shape.push_back(x.dim(d));
  }
  order.insert(order.end(), along.begin(), along.end());
  const bool last = std::ranges::is_sorted(order);
  if (!last && along.back() + 1 == static_cast<int>(along.size())) {
    return {reshape(contiguous(x), Shape{elements, rest}), ReduceOver::leading, shape};
  }
  const Tensor ordered = last ? x : permute(x, order);
  // Rows of the last dimension may lie apart.
  if (along.size() == 1 && last && kernels::has_one_row_stride(ordered.view())) {
    return {ordered, ReduceOver::last, shape};
  }
  return {reshape(contiguous(ordered), Shape{rest, elements}), ReduceOver::last, shape};
}

// `called`: the function that a user called, for errors.
Tensor reduce(ReduceOp op, const Tensor& x, const Dims& dims, bool keepdim,
              std::string_view called = {}) {
  const std::string_view name = called.empty() ? kernels::name_of(op) : called;
  require(is_float(x.dtype()), name, ": x must be a float, not ", x.dtype(), "; cast() it");
  const Reduced in = gather_dims(name, x, dims, keepdim);
  const int64_t elements = in.matrix.dim(in.over == ReduceOver::last ? -1 : 0);
  require(op == ReduceOp::sum || elements > 0, name, ": no ", name, " of no elements, of shape ",
          x.shape());
  return reshape(reduce(op, in.matrix, in.over), in.shape);
}

}  // namespace

Tensor sum(const Tensor& x, ReduceOver over) { return reduce(ReduceOp::sum, x, over); }
Tensor mean(const Tensor& x, ReduceOver over) { return reduce(ReduceOp::mean, x, over); }
Tensor max(const Tensor& x, ReduceOver over) { return reduce(ReduceOp::max, x, over); }

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  return reduce(ReduceOp::sum, x, dims, keepdim);
}
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  return reduce(ReduceOp::mean, x, dims, keepdim);
}
Tensor max(const Tensor& x, const Dims& dims, bool keepdim) {
  return reduce(ReduceOp::max, x, dims, keepdim);
}
Tensor min(const Tensor& x, const Dims& dims, bool keepdim) {
  require(is_float(x.dtype()), "min: x must be a float, not ", x.dtype(), "; cast() it");
  return neg(reduce(ReduceOp::max, neg(x), dims, keepdim, "min"));
}

Tensor var(const Tensor& x, const Dims& dims, bool keepdim, int correction) {
  if (is_16bit_float(x.dtype())) {
    return cast(var(cast(x, DType::f32), dims, keepdim, correction), x.dtype());
  }
  int64_t count = 1;
  for (const int d : dims.of("var", x.shape())) count *= x.dim(d);
  require(count > correction, "var: ", count, " elements with a correction of ", correction,
          ", of shape ", x.shape());
  const double factor = static_cast<double>(count) / static_cast<double>(count - correction);
  return scale(mean(square(sub(x, mean(x, dims, true))), dims, keepdim), factor);
}

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  if (is_16bit_float(x.dtype())) {
    return cast(logsumexp(cast(x, DType::f32), dims, keepdim), x.dtype());
  }
  constexpr std::string_view kCalled = "logsumexp";
  // The largest element is a constant here: it cancels in the gradient. Where it is infinite 0
  // takes its place, so that nothing becomes inf - inf.
  const double most = x.dtype() == DType::f64 ? std::numeric_limits<double>::max()
                                              : double{std::numeric_limits<float>::max()};
  const Tensor largest = clamp(reduce(ReduceOp::max, x.detach(), dims, true, kCalled), -most, most);
  const Tensor sums = log(sum(exp(sub(x, largest)), dims, true));
  Tensor y = add(sums, largest);
  if (keepdim) return y;
  Shape shape;
  const std::vector<int> along = dims.of("logsumexp", x.shape());
  for (int d = 0; d < x.rank(); ++d) {
    if (std::ranges::find(along, d) == along.end()) shape.push_back(x.dim(d));
  }
  return reshape(y, shape);
}

}  // namespace zinc::autograd
