#include "autograd/linear_products.h"

#include <utility>

#include "autograd/mode.h"
#include "autograd/view_shapes.h"
#include "kernels/reduce.h"

namespace zinc::autograd {
namespace {

template <class V>
V part_of(const V& rows, int64_t begin, int64_t count) {
  return rows ? rows.narrow(0, begin, count) : rows;
}

class PlainProducts final : public LinearProducts {
 public:
  explicit PlainProducts(WeightLayout layout) : LinearProducts(layout, {}) {}

  Tensor result(const Tensor& x, const RowProduct& y, bool saves) override {
    make(y);
    return saves ? x : Tensor();
  }
  void input_gradient(const RowProduct& dx, const LinearOperand&) const override { make(dx); }
  void weight_gradient(const WeightGradient& wanted) const override {
    kernels::gemm(product_for(wanted), compute_stream());
  }

 private:
  static void make(const RowProduct& product) {
    product.for_each_part([](const kernels::Gemm& rows) { kernels::gemm(rows, compute_stream()); });
  }
};

}  // namespace

kernels::Gemm RowProduct::rows(int64_t begin, int64_t count) const {
  kernels::Gemm part = whole;
  part.a = whole.a.narrow(0, begin, count);
  part.c = whole.c.narrow(0, begin, count);
  part.activation_input = part_of(whole.activation_input, begin, count);
  part.addend = part_of(whole.addend, begin, count);
  part.factor = part_of(whole.factor, begin, count);
  part.factor_gradient = part_of(whole.factor_gradient, begin, count);
  part.pre_activation = part_of(whole.pre_activation, begin, count);
  return part;
}

GradientOperands LinearProducts::read_gradient(const Tensor& dz, bool, bool) const {
  return {.for_input = {}, .for_weights = {.matrix = dz}};
}

LinearOperand LinearProducts::read_saved(Tensor saved) const {
  return {.matrix = std::move(saved)};
}

void LinearProducts::bias_gradient(const Tensor& dz, const TensorSlice::Piece& outputs,
                                   const GradientTarget& db) const {
  const ConstView rows = as_matrix("linear", ConstView(dz.view()));
  kernels::reduce({.op = kernels::ReduceOp::sum,
                   .over = kernels::ReduceOver::leading,
                   .x = rows.narrow(1, outputs.begin, outputs.count),
                   .y = db.view,
                   .accumulate = db.accumulate},
                  compute_stream());
}

kernels::Gemm LinearProducts::product_for(const WeightGradient& wanted) const {
  const bool out_in = layout_ == WeightLayout::out_in;
  const auto& [x, dz, outputs, dw, db] = wanted;
  const ConstView x_rows = as_matrix("linear", ConstView(x.matrix.view()));
  const ConstView dz_rows =
      as_matrix("linear", ConstView(dz.matrix.view())).narrow(1, outputs.begin, outputs.count);
  return {.a = out_in ? dz_rows : x_rows,
          .b = out_in ? x_rows : dz_rows,
          .bias = {},
          .activation_input = {},
          .a_sums = out_in ? db.view : View(),
          .b_sums = out_in ? View() : db.view,
          .adds_to_sums = db.accumulate,
          .c = dw.view,
          .pre_activation = {},
          .transpose_a = true,
          .beta = dw.accumulate ? 1.0 : 0.0};
}

std::shared_ptr<LinearProducts> plain_products(WeightLayout layout) {
  return std::make_shared<PlainProducts>(layout);
}

}  // namespace zinc::autograd
