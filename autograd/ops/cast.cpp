#include "autograd/ops/cast.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/copy.h"

namespace zinc::autograd {
namespace {

class CastNode final : public Node {
 public:
  explicit CastNode(DType dtype) : dtype_(dtype) {}
  std::string_view name() const override { return "cast"; }

  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_strided_gradient(0);
    if (dy.dtype() != dtype_) {
      Tensor dx = pass.gradient_memory(0, true);
      kernels::copy({.x = dy.view(), .y = dx.view()}, compute_stream());
      dy = std::move(dx);
    }
    pass.give(0, std::move(dy));
  }

 private:
  DType dtype_;
};

Tensor copied(const Tensor& x, DType dtype) {
  require(!is_float(x.dtype()) || is_float(dtype), "cast: ", x.dtype(), " does not convert to ",
          dtype);
  Tensor y = Tensor::empty(x.shape(), dtype);
  kernels::copy({.x = x.view(), .y = y.view()}, compute_stream());
  if (needs_gradient(x)) {
    auto node = make_node<CastNode>(x.dtype());
    node->add_input(x);
    node->set_output(y);
  }
  return y;
}

}  // namespace

Tensor cast(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : copied(x, dtype); }

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : copied(x, x.dtype()); }

}  // namespace zinc::autograd
