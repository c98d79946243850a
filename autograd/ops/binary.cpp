#include "autograd/ops/binary.h"

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/expand.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/unary.h"
#include "kernels/broadcast.h"
#include "kernels/checks.h"

namespace zinc::autograd {
namespace {

using kernels::BinaryOp;

// Saved, where the gradient reads them: a, b.
class BinaryNode final : public Node {
 public:
  BinaryNode(BinaryOp op, const Shape& a, const Shape& b, DType dtype)
      : op_(op), a_shape_(a), b_shape_(b), dtype_(dtype) {}
  std::string_view name() const override { return kernels::name_of(op_); }

  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    const bool reads = kernels::reads_arguments(op_);
    const Tensor a = reads ? pass.take_saved(0) : Tensor();
    const Tensor b = reads ? pass.take_saved(1) : Tensor();
    // The gradient of a sum is dy itself.
    const bool a_takes_dy = !reads && a_shape_ == dy.shape();
    const bool b_takes_dy = op_ == BinaryOp::add && b_shape_ == dy.shape();
    const bool sums =
        a_shape_ == dy.shape() && (!reads || (a.is_contiguous() && b.is_contiguous()));
    Tensor da, db;
    if (pass.needs(1) && !b_takes_dy) db = place_for(pass, 1, b_shape_, dy, sums);
    if (pass.needs(0) && !a_takes_dy) {
      const bool in_place = !db.defined() && dy.is_sole_owner() && a_shape_ == dy.shape();
      da = in_place ? dy : place_for(pass, 0, a_shape_, dy, false);
    }
    if (da.defined() || db.defined()) {
      // The kernel takes the shape of an argument that it does not read from the gradient's; terms
      // in f32 that are summed afterwards have dy's.
      const bool is_place = db.defined() && db.dtype() == dtype_;
      kernels::binary_backward({.op = op_,
                                .a = view_or_absent(a),
                                .b = reads ? b.view() : (is_place ? db : dy).view(),
                                .dy = dy.view(),
                                .da = view_or_absent(da),
                                .db = view_or_absent(db)},
                               compute_stream());
    }
    if (pass.needs(1) && b_takes_dy) db = dy;
    if (pass.needs(0) && a_takes_dy) da = dy;
    dy = {};
    if (db.defined()) pass.give(1, summed(db, b_shape_));
    if (da.defined()) pass.give(0, summed(da, a_shape_));
  }

 private:
  // Memory of the operand's shape where the kernel can sum to that; else one f32 per element.
  Tensor place_for(BackwardPass& pass, int input, const Shape& shape, const Tensor& dy,
                   bool sums) const {
    if (shape == dy.shape() || (sums && kernels::repeats_as_a_row(shape, dy.shape()))) {
      return pass.gradient_memory(input);
    }
    return Tensor::empty(dy.shape(), kernels::accumulator_of(dtype_));
  }

  Tensor summed(const Tensor& terms, const Shape& shape) const {
    return cast(sum_to(terms, shape), dtype_);
  }

  BinaryOp op_;
  Shape a_shape_;
  Shape b_shape_;
  DType dtype_;
};

}  // namespace

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  const std::string_view name = kernels::name_of(op);
  require(is_float(a.dtype()), name, ": floats are needed, not ", a.dtype(), "; cast() them");
  require(a.dtype() == b.dtype(), name, ": dtypes differ: ", a.dtype(), " vs ", b.dtype(),
          "; cast() one of them");
  const Shape shape = kernels::broadcast_shape(name, a.shape(), b.shape());
  // A row that is repeated is the second argument: its gradient then takes one pass.
  const bool commutes = op != BinaryOp::sub && op != BinaryOp::div;
  if (commutes && a.shape() != shape && kernels::repeats_as_a_row(a.shape(), shape)) {
    if (b.shape() == shape) return binary(op, b, a);
  }
  Tensor y = Tensor::empty(shape, a.dtype());
  kernels::binary({.op = op, .a = a.view(), .b = b.view(), .y = y.view()}, compute_stream());
  if (needs_gradient(a, b)) {
    const bool reads = kernels::reads_arguments(op);
    auto node = make_node<BinaryNode>(op, a.shape(), b.shape(), a.dtype());
    node->add_input(a);
    node->add_input(b);
    if (reads) {
      node->save(a);
      node->save(b);
    }
    node->set_output(y);
  }
  return y;
}

Tensor add(const Tensor& a, const Tensor& b) { return binary(BinaryOp::add, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary(BinaryOp::sub, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary(BinaryOp::mul, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary(BinaryOp::div, a, b); }

using kernels::UnaryOp;
Tensor add(const Tensor& a, double b) { return unary(UnaryOp::affine, a, 1.0, b, "add"); }
Tensor sub(const Tensor& a, double b) { return unary(UnaryOp::affine, a, 1.0, -b, "sub"); }
Tensor sub(double a, const Tensor& b) { return unary(UnaryOp::affine, b, -1.0, a, "sub"); }
Tensor mul(const Tensor& a, double b) { return scale(a, b, "mul"); }
Tensor div(const Tensor& a, double b) { return unary(UnaryOp::over_scalar, a, b, 0.0, "div"); }
Tensor div(double a, const Tensor& b) { return unary(UnaryOp::scalar_over, b, a, 0.0, "div"); }
Tensor maximum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::maximum, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary(BinaryOp::minimum, a, b); }

}  // namespace zinc::autograd
