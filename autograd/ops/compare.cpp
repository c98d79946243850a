#include "autograd/ops/compare.h"

#include "autograd/mode.h"
#include "kernels/broadcast.h"

namespace zinc::autograd {

Tensor compare(CompareOp op, const Tensor& a, const Tensor& b) {
  require(a.dtype() == b.dtype(), kernels::name_of(op), ": dtypes differ: ", a.dtype(), " vs ",
          b.dtype(), "; cast() one of them");
  const Shape shape = kernels::broadcast_shape(kernels::name_of(op), a.shape(), b.shape());
  Tensor y = Tensor::empty(shape, DType::u8);
  kernels::compare({.op = op, .a = a.view(), .b = b.view(), .y = y.view()}, compute_stream());
  return y;
}

Tensor compare(CompareOp op, const Tensor& a, double b) {
  Tensor y = Tensor::empty(a.shape(), DType::u8);
  kernels::compare({.op = op, .a = a.view(), .b_value = b, .y = y.view()}, compute_stream());
  return y;
}

Tensor logical_and(const Tensor& a, const Tensor& b) {
  return compare(CompareOp::logical_and, a, b);
}
Tensor logical_or(const Tensor& a, const Tensor& b) { return compare(CompareOp::logical_or, a, b); }
Tensor logical_not(const Tensor& mask) { return compare(CompareOp::eq, mask, 0.0); }

}  // namespace zinc::autograd
