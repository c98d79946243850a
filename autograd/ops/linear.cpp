#include "autograd/ops/linear.h"

#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/linear_fp8.h"
#include "autograd/node.h"
#include "autograd/view_shapes.h"
#include "kernels/gelu.h"
#include "kernels/unary.h"

namespace zinc::autograd {
namespace {

kernels::GeluKind gelu_kind(Activation activation) {
  return activation == Activation::gelu_erf ? kernels::GeluKind::erf : kernels::GeluKind::tanh;
}

// y = activation(z), as the product's epilogue computes it.
void activation_forward(Activation activation, const ConstView& z, const View& y) {
  if (activation == Activation::silu) {
    kernels::unary({.op = kernels::UnaryOp::silu, .x = z, .y = y}, compute_stream());
    return;
  }
  kernels::gelu_forward({.kind = gelu_kind(activation), .x = z, .y = y}, compute_stream());
}

// dz = dy * activation'(z), in place where dz is dy or z
void activation_backward(Activation activation, const ConstView& z, const ConstView& dy,
                         const View& dz) {
  if (activation == Activation::silu) {
    kernels::unary_backward({.op = kernels::UnaryOp::silu, .x = z, .dy = dy, .dx = dz},
                            compute_stream());
    return;
  }
  kernels::gelu_backward({.kind = gelu_kind(activation), .x = z, .dy = dy, .dx = dz},
                         compute_stream());
}

class LinearNode final : public Node {
 public:
  static constexpr int kAddend = 1;  // the input of this number

  // `parts`: the outputs of each weight.
  LinearNode(std::shared_ptr<const LinearProducts> products, Activation activation,
             std::vector<int64_t> parts)
      : products_(std::move(products)), activation_(activation), parts_(std::move(parts)) {}
  // The numbers of weight and bias of a part.
  static int weight_of(size_t part) { return 2 * static_cast<int>(part); }
  static int bias_of(size_t part) { return weight_of(part) + 1; }
  std::string_view name() const override { return "linear"; }

  // z = x W^T + b:  dz = dy * activation'(z);  db = sum_rows dz;  dW = dz^T x;  dx = dz W
  // The weight's gradient comes first, so that x can go before dx is made.
  void backward(BackwardPass& pass) override {
    RowsUnderWay rows;
    Tensor dz = pass.take_gradient_under_way(0, rows);
    if (activation_ != Activation::none || !products_->allows().splits_rows || !pass.needs(0) ||
        pass.needs(kAddend)) {
      std::exchange(rows, {}).wait_for_all();
    }
    if (pass.needs(kAddend)) pass.give(kAddend, dz);
    if (pass.is_behind_derivative()) {
      saved()[1].reset();
    } else if (activation_ != Activation::none) {
      const Tensor z = pass.take_saved(1);
      Tensor target = dz.is_sole_owner() ? dz : Tensor::empty(dz.shape(), dz.dtype());
      activation_backward(activation_, z.view(), dz.view(), target.view());
      dz = std::move(target);
    }
    if (needs_weights(pass)) pass.prepare_saved(0);
    // Where gradients of weights wait for ranks, dx is made first, so that the ranks get it early.
    // If rows of dz are still under way, dx is made from the rows that have come.
    const bool is_under_way = rows.num_parts > 0;
    const bool begins_with_input = pass.hides_weights() || is_under_way;
    GradientOperands read;
    if (!is_under_way) read = products_->read_gradient(dz, pass.needs(0), needs_weights(pass));
    if (begins_with_input) give_input_gradient(pass, dz, read.for_input, std::exchange(rows, {}));
    if (is_under_way && needs_weights(pass)) read = products_->read_gradient(dz, false, true);
    give_weight_gradients(pass, dz, read.for_weights);
    read.for_weights = {};
    if (!begins_with_input) {
      give_input_gradient(pass, std::move(dz), std::move(read.for_input), {});
    }
  }

  bool offers_derivative() const override { return activation_ != Activation::none; }
  Derivative derivative() override {
    return {.activation = activation_, .input = saved()[1].restore()};
  }

  bool can_remake(int) const override { return activation_ != Activation::none; }
  Tensor remake(int) override {
    const Tensor z = saved()[1].restore();
    Tensor y = Tensor::empty(z.shape(), z.dtype());
    activation_forward(activation_, z.view(), y.view());
    return y;
  }

 private:
  bool needs_weights(const BackwardPass& pass) const {
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (pass.weight_needs(weight_of(part))) return true;
    }
    return false;
  }

  // `read`: dz, as the products for gradients of weights read it.
  void give_weight_gradients(BackwardPass& pass, const Tensor& dz, const LinearOperand& read) {
    LinearOperand x;
    int64_t first = 0;
    for (size_t part = 0; part < parts_.size(); ++part) {
      const int weight = weight_of(part), bias = bias_of(part);
      const TensorSlice::Piece outputs{first, parts_[part]};
      // The product that makes the weight's gradient may make the bias's beside it.
      GradientTarget db;
      if (pass.weight_needs(weight) && pass.weight_needs(bias) && products_->allows().sums_bias &&
          pass.makes_at_once(weight) && pass.makes_at_once(bias)) {
        db = pass.weight_gradient(bias);
      } else if (pass.weight_needs(bias)) {
        pass.make_weight_gradient(
            bias, [products = products_, dz, outputs](const GradientTarget& target) {
              products->bias_gradient(dz, outputs, target);
            });
      }
      if (pass.weight_needs(weight)) {
        if (!x.matrix.defined()) x = products_->read_saved(pass.take_saved(0));
        pass.make_weight_gradient(
            weight, [products = products_, x, read, outputs, db](const GradientTarget& target) {
              products->weight_gradient(
                  {.x = x, .dz = read, .outputs = outputs, .dw = target, .db = db});
            });
      }
      first += parts_[part];
    }
  }

  JoinedValue weight_value(const BackwardPass& pass) const {
    std::vector<WeightValue> values;
    for (size_t part = 0; part < parts_.size(); ++part) {
      values.push_back(pass.weight(weight_of(part)));
    }
    return JoinedValue(std::move(values));
  }

  // `read`: all of dz, as the product reads it; of dz under way the product reads the parts.
  void give_input_gradient(BackwardPass& pass, Tensor dz, LinearOperand read,
                           const RowsUnderWay& under_way) {
    if (!pass.needs(0)) return;
    Tensor dx;
    if (products_->allows().adds) dx = pass.take_arrived(0, /*to_write=*/true);
    const bool adds = dx.defined();
    std::optional<Derivative> derivative;
    // Rows that are under way travel beside this product. A forward pass that is computed again
    // waits for ranks itself, so it does not come between.
    if (!adds && products_->allows().adds) {
      derivative = pass.take_derivative(0, under_way.num_parts > 0);
    }
    if (derivative && derivative->gradient.defined()) {
      dx = derivative->gradient;
    } else if (!adds) {
      dx = pass.gradient_memory(0);
    }
    {
      const JoinedValue weight = weight_value(pass);
      const auto rows_of = [](const Tensor& of_derivative) {
        return of_derivative.defined() ? as_matrix("linear", of_derivative.view()) : View();
      };
      const ConstView dz_rows = as_matrix("linear", ConstView(dz.view()));
      products_->input_gradient(
          {.whole = {.a = dz_rows,
                     .b = weight.view(),
                     .bias = {},
                     .activation_input = derivative ? rows_of(derivative->input) : View(),
                     .factor = derivative ? rows_of(derivative->factor) : View(),
                     .factor_gradient = derivative ? rows_of(derivative->factor_gradient) : View(),
                     .c = as_matrix("linear", dx.view()),
                     .pre_activation = {},
                     .transpose_b = products_->layout() == WeightLayout::in_out,
                     .beta = adds ? 1.0 : 0.0,
                     .activation = derivative ? derivative->activation : Activation::none},
           .in_parts = [&](const auto& make) { under_way.for_each_part(dz_rows.dim(0), make); }},
          read);
    }
    dz = {};
    read = {};
    pass.give(0, std::move(dx));
  }

  std::shared_ptr<const LinearProducts> products_;
  Activation activation_;
  std::vector<int64_t> parts_;
};

std::shared_ptr<LinearProducts> make_products(const LinearOptions& options) {
  if (options.slices != nullptr) return options.slices->products(options.layout);
  return options.fp8 ? fp8_products(options.layout) : plain_products(options.layout);
}

void check(const Tensor& x, const Weight& weight, const Weight& bias, int64_t in, int64_t out,
           const LinearOptions& options, const LinearAbilities& allows) {
  require(allows.activates || (!bias && options.activation == Activation::none),
          "linear: bias and activation come behind the sum over slices of inputs");
  require(!options.addend.defined() ||
              (allows.adds && options.activation == Activation::none && !options.in_rows),
          "linear: an addend comes without activation, slices and rows under way");
  require(!options.fp8 || (x.dtype() == DType::bf16 && options.slices == nullptr),
          "linear: products of 8 bits are of bf16, and of whole layers");
  require(x.rank() >= 1 && x.dim(-1) == in, "linear: x of shape ", x.shape(),
          " must have rows of length ", in, " for ", weight);
  require(weight.dtype() == x.dtype(), "linear: the weight is ", weight.dtype(), ", x is ",
          x.dtype());
  if (!bias) return;
  require(bias.shape() == Shape{out}, "linear: the bias must have shape ", Shape{out}, ", not ",
          bias.shape());
  require(bias.dtype() == x.dtype(), "linear: the bias is ", bias.dtype(), ", x is ", x.dtype());
}

JoinedValue acquire(const std::vector<LinearWeight>& parts, Weight LinearWeight::*which) {
  std::vector<Parameter*> parameters;
  for (const LinearWeight& part : parts) {
    if (Parameter* parameter = (part.*which).parameter()) parameters.push_back(parameter);
  }
  if (parts.size() > 1 && parameters.size() == parts.size()) Parameter::join_data(parameters);
  std::vector<WeightValue> values;
  for (const LinearWeight& part : parts) values.push_back((part.*which).acquire());
  return JoinedValue(std::move(values));
}

}  // namespace

Tensor linear(const Tensor& x, const Weight& weight, const Weight& bias,
              const LinearOptions& options) {
  return linear(x, std::vector<LinearWeight>{{.weight = weight, .bias = bias}}, options);
}

Tensor linear(const Tensor& x, const std::vector<LinearWeight>& parts,
              const LinearOptions& options) {
  const bool out_in = options.layout == WeightLayout::out_in;
  const std::shared_ptr<LinearProducts> products = make_products(options);
  require(!parts.empty(), "linear: there are no weights");
  require(parts.size() == 1 || (out_in && products->allows().joins_weights),
          "linear: several weights are [out, in], and not cut into slices");
  std::vector<int64_t> outs;
  bool records = needs_gradient(x, options.addend), weights_need = false;
  for (const auto& [weight, bias] : parts) {
    require(static_cast<bool>(weight) && weight.rank() == 2, "linear: the weight must be a matrix");
    require(static_cast<bool>(bias) == static_cast<bool>(parts.front().bias),
            "linear: of several weights all have a bias, or none has");
    outs.push_back(weight.dim(out_in ? 0 : 1));
    check(x, weight, bias, weight.dim(out_in ? 1 : 0), outs.back(), options, products->allows());
    records = records || needs_gradient(weight, bias);
    weights_need |= weight.requires_grad();
  }
  const int64_t out = std::accumulate(outs.begin(), outs.end(), int64_t{0});
  Shape shape = x.shape();
  shape.set(shape.rank() - 1, out);
  const Tensor& addend = options.addend;
  require(!addend.defined() || (addend.shape() == shape && addend.dtype() == x.dtype()),
          "linear: the addend is ", addend.defined() ? str(addend.dtype(), addend.shape()) : "",
          ", the result ", x.dtype(), shape);

  Tensor y = Tensor::empty(shape, x.dtype());
  Tensor z, saved;
  if (records && options.activation != Activation::none) z = Tensor::empty(shape, x.dtype());
  {
    const JoinedValue w = acquire(parts, &LinearWeight::weight);
    const JoinedValue b = acquire(parts, &LinearWeight::bias);
    RowProduct product{
        .whole = {.a = as_matrix("linear", ConstView(x.view())),
                  .b = w.view(),
                  .bias = b.view(),
                  .activation_input = {},
                  .addend = addend.defined() ? as_matrix("linear", ConstView(addend.view()))
                                             : ConstView(),
                  .c = as_matrix("linear", y.view()),
                  .pre_activation = z.defined() ? as_matrix("linear", z.view()) : View(),
                  .transpose_b = out_in,
                  .beta = addend.defined() ? 1.0 : 0.0,
                  .activation = options.activation}};
    if (options.in_rows) {
      product.in_parts = [&](const auto& make) { options.in_rows(y, make); };
    }
    saved = products->result(x, product, records && weights_need);
  }
  if (records) {
    auto node = make_node<LinearNode>(products, options.activation, std::move(outs));
    node->add_input(x);
    node->add_input(addend);
    for (const auto& [weight, bias] : parts) {
      node->add_weight(weight, x.requires_grad());
      node->add_weight(bias, false);
    }
    node->save(saved);
    node->save(z);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
