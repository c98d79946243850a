#include "autograd/linear_fp8.h"

#include <utility>

#include "autograd/mode.h"
#include "autograd/remade.h"
#include "autograd/view_shapes.h"
#include "kernels/fp8_encode.h"

namespace zinc::autograd {
namespace {

// Codes of a matrix [rows, cols], for the products that take it.
struct Codes {
  Fp8 format = Fp8::none;
  Tensor plain, transposed;  // codes of kernels/fp8_encode.h; undefined: not made
  Tensor scale;
};

// Encodes the matrix in the forms that products need, or in one form if the device's products need
// no other. `scale`: from an earlier call for the same matrix.
Codes encode(const ConstView& matrix, Fp8 format, bool plain, bool transposed,
             const Tensor& scale = {}) {
  const int64_t rows = matrix.dim(0), cols = matrix.dim(1);
  if (!kernels::reads_codes_by_rows(matrix.device())) {
    plain = plain || transposed;
    transposed = false;
  }
  Codes codes{.format = format};
  if (plain) codes.plain = Tensor::empty(Shape{rows, cols}, DType::u8);
  if (transposed) codes.transposed = Tensor::empty(Shape{cols, rows}, DType::u8);
  codes.scale = scale.defined() ? scale : Tensor::empty(Shape{kernels::kFp8ScaleNumel}, DType::f32);
  kernels::fp8_encode({.x = matrix,
                       .format = format,
                       .codes = plain ? codes.plain.view() : View(),
                       .transposed = transposed ? codes.transposed.view() : View(),
                       .scale = codes.scale.view(),
                       .is_known = scale.defined()},
                      compute_stream());
  return codes;
}

// The form that the gradient of a weight takes, whose sum runs over rows.
Tensor Codes::*form_for_weights(const Device& device) {
  return kernels::reads_codes_by_rows(device) ? &Codes::transposed : &Codes::plain;
}

// The product op(a) op(b) of codes, in the place of its operands.
void take_codes(kernels::Gemm& product, const Codes& a, bool transpose_a, const Codes& b,
                bool transpose_b) {
  const bool a_is_plain = !transpose_a || !a.transposed.defined();
  const bool b_is_plain = transpose_b || !b.transposed.defined();
  product.a = (a_is_plain ? a.plain : a.transposed).view();
  product.b = (b_is_plain ? b.plain : b.transposed).view();
  product.transpose_a = transpose_a && a_is_plain;
  product.transpose_b = transpose_b || !b_is_plain;
  product.a_fp8 = a.format;
  product.b_fp8 = b.format;
  product.a_scale = a.scale.view();
  product.b_scale = b.scale.view();
}

class Fp8Products final : public LinearProducts {
 public:
  explicit Fp8Products(WeightLayout layout) : LinearProducts(layout, {.sums_bias = false}) {}

  Tensor result(const Tensor& x, const RowProduct& y, bool saves) override {
    const bool may_save_codes = saves && !is_remade(x);
    const Codes of_weight = encode_weight(y.whole);
    weight_scale_ = of_weight.scale;
    Codes of_x;
    y.for_each_part([&](kernels::Gemm rows) {
      const bool is_whole = rows.a.dim(0) == y.whole.a.dim(0);
      const Codes of_rows = encode(rows.a, Fp8::e4m3, true, is_whole && may_save_codes);
      take_codes(rows, of_rows, false, of_weight, rows.transpose_b);
      kernels::gemm(rows, compute_stream());
      if (is_whole) of_x = of_rows;
    });
    x_scale_ = of_x.scale;
    saves_codes_ = may_save_codes && of_x.scale.defined();
    if (!saves) return {};
    return saves_codes_ ? of_x.*form_for_weights(x.device()) : x;
  }

  GradientOperands read_gradient(const Tensor& dz, bool for_input,
                                 bool for_weights) const override {
    const Codes codes =
        encode(as_matrix("linear", ConstView(dz.view())), Fp8::e5m2, for_input, for_weights);
    GradientOperands read;
    if (for_input) read.for_input = {.matrix = codes.plain, .scale = codes.scale};
    if (for_weights) read.for_weights = operand_for_weights(codes, dz.device());
    return read;
  }

  void input_gradient(const RowProduct& dx, const LinearOperand& dz) const override {
    const Codes of_weight = encode_weight(dx.whole, weight_scale_);
    dx.for_each_part([&](kernels::Gemm rows) {
      const Codes of_rows =
          dz.matrix.defined()
              ? Codes{.format = Fp8::e5m2, .plain = dz.matrix, .transposed = {}, .scale = dz.scale}
              : encode(rows.a, Fp8::e5m2, true, false);
      take_codes(rows, of_rows, false, of_weight, rows.transpose_b);
      kernels::gemm(rows, compute_stream());
    });
  }

  LinearOperand read_saved(Tensor saved) const override {
    if (saves_codes_) return {.matrix = std::move(saved), .scale = x_scale_};
    const Codes codes =
        encode(as_matrix("linear", ConstView(saved.view())), Fp8::e4m3, false, true, x_scale_);
    return operand_for_weights(codes, saved.device());
  }

  void weight_gradient(const WeightGradient& wanted) const override {
    const bool out_in = layout() == WeightLayout::out_in;
    const auto form = form_for_weights(wanted.dz.matrix.device());
    Codes x{.format = Fp8::e4m3, .plain = {}, .transposed = {}, .scale = wanted.x.scale};
    Codes dz{.format = Fp8::e5m2, .plain = {}, .transposed = {}, .scale = wanted.dz.scale};
    x.*form = wanted.x.matrix;
    dz.*form = wanted.dz.matrix.narrow_view(form == &Codes::transposed ? 0 : 1,
                                            wanted.outputs.begin, wanted.outputs.count);
    kernels::Gemm product{.c = wanted.dw.view, .beta = wanted.dw.accumulate ? 1.0 : 0.0};
    take_codes(product, out_in ? dz : x, true, out_in ? x : dz, false);
    kernels::gemm(product, compute_stream());
  }

 private:
  // Codes of a product's operand b, in the form along whose rows the product's sums run.
  static Codes encode_weight(const kernels::Gemm& product, const Tensor& scale = {}) {
    return encode(product.b, Fp8::e4m3, product.transpose_b, !product.transpose_b, scale);
  }
  static LinearOperand operand_for_weights(const Codes& codes, const Device& device) {
    return {.matrix = codes.*form_for_weights(device), .scale = codes.scale};
  }

  // From result(). No scale of x where its rows came in parts.
  Tensor x_scale_, weight_scale_;
  bool saves_codes_ = false;
};

}  // namespace

std::shared_ptr<LinearProducts> fp8_products(WeightLayout layout) {
  return std::make_shared<Fp8Products>(layout);
}

}  // namespace zinc::autograd
