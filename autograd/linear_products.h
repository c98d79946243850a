// autograd/linear_products.h: the products of a linear layer, apart from what a graph does with
// them.
//
//   y = x W^T + b    dx = dz W    dW = dz^T x    db = sum over rows of dz
//
// x [..., in], y and dz [..., out], b [out]; W as its layout says. linear() (autograd/ops/linear.h)
// makes one LinearProducts for each call, for the products of the call and of its backward pass. It
// asks allows(), and never which products it has.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "autograd/parameter.h"
#include "core/tensor_slice.h"
#include "kernels/gemm.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

enum class WeightLayout : uint8_t {
  out_in,  // [out, in]: Hugging Face's Linear
  in_out,  // [in, out]: GPT-2's Conv1D
};

// What the pass that makes a product may do beside it.
struct LinearAbilities {
  // Adds the bias to the result, and applies an activation.
  bool activates = true;
  // Adds the result to an addend, adds the gradient of the input to a gradient that has arrived, or
  // multiplies it with a derivative.
  bool adds = true;
  // Makes the gradient of the input from some rows of dz, before the others are there.
  bool splits_rows = true;
  // Sums the gradient of the bias while it makes that of the weight.
  bool sums_bias = true;
  // Takes several weights side by side as one weight.
  bool joins_weights = true;
};

// A product that is made some rows at a time: those of its operand a, and of each operand and
// result that has c's shape.
struct RowProduct {
  kernels::Gemm whole;
  // Calls make(begin, count) until all rows are made. Empty: all rows at once.
  std::function<void(const std::function<void(int64_t begin, int64_t count)>& make)> in_parts{};

  // make(kernels::Gemm rows): the product of some rows
  template <class Make>
  void for_each_part(const Make& make) const {
    const auto part = [&](int64_t begin, int64_t count) { make(rows(begin, count)); };
    if (!in_parts) return part(0, whole.c.dim(0));
    in_parts(part);
  }
  kernels::Gemm rows(int64_t begin, int64_t count) const;
};

// A matrix in the form in which a product reads it: the matrix itself, or codes of it.
struct LinearOperand {
  Tensor matrix;
  Tensor scale{};  // of codes: kernels/fp8_encode.h
};

// dz as the products of the backward pass read it.
struct GradientOperands {
  LinearOperand for_input;    // for input_gradient(); may be undefined
  LinearOperand for_weights;  // for weight_gradient()
};

struct WeightGradient {
  LinearOperand x;             // from read_saved()
  LinearOperand dz;            // GradientOperands::for_weights
  TensorSlice::Piece outputs;  // the features of dz that are outputs of this weight
  GradientTarget dw;           // shape of the weight
  GradientTarget db{};  // [out]; given only with LinearAbilities::sums_bias; no view: not made
};

// Methods issue work to the compute stream. Sums are made in f32 (f64 for f64) and rounded once.
// Deterministic.
class LinearProducts {
 public:
  LinearProducts(WeightLayout layout, const LinearAbilities& abilities)
      : layout_(layout), abilities_(abilities) {}
  virtual ~LinearProducts() = default;

  WeightLayout layout() const { return layout_; }
  const LinearAbilities& allows() const { return abilities_; }

  // Makes y from the rows of x (operand a) and the weight (operand b). Called once, before the
  // others. Returns what backward needs of x for the gradient of the weight; undefined unless
  // `saves`.
  virtual Tensor result(const Tensor& x, const RowProduct& y, bool saves) = 0;

  // dz, contiguous, in the forms that the wanted gradients take. By default dz as it is.
  virtual GradientOperands read_gradient(const Tensor& dz, bool for_input, bool for_weights) const;
  // Makes dx from the rows of dz (operand a) and the weight (operand b). `dz`: for_input of all
  // rows; undefined where rows are still under way, and then operand a is read part by part.
  virtual void input_gradient(const RowProduct& dx, const LinearOperand& dz) const = 0;
  // x in the form that weight_gradient() takes. `saved`: what result() returned. By default as it
  // is.
  virtual LinearOperand read_saved(Tensor saved) const;
  // May be called after the node of the graph is gone. So may bias_gradient().
  virtual void weight_gradient(const WeightGradient& wanted) const = 0;
  // db [outputs.count]: the sum over rows of these outputs of dz.
  virtual void bias_gradient(const Tensor& dz, const TensorSlice::Piece& outputs,
                             const GradientTarget& db) const;

 protected:
  // The product for a weight's gradient, of operands as they are.
  kernels::Gemm product_for(const WeightGradient& wanted) const;

 private:
  WeightLayout layout_;
  LinearAbilities abilities_;
};

// One product for each result, of operands as they are.
std::shared_ptr<LinearProducts> plain_products(WeightLayout layout);

}  // namespace zinc::autograd
