#include "autograd/ops/linear.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/remade.h"
#include "autograd/view_shapes.h"
#include "kernels/fp8_encode.h"
#include "kernels/gelu.h"
#include "kernels/reduce.h"
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

bool is_cut_by_inputs(const LinearOptions& options) {
  return options.slices != nullptr && options.slices->of_inputs;
}

// The dimension of the weight along which it is cut.
int cut_of_weight(const LinearOptions& options) {
  return is_cut_by_inputs(options) == (options.layout == WeightLayout::out_in) ? 1 : 0;
}

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

// Note [Codes of a layer]
// In 8 bits, one pass over x and one over dz make the codes of both products that take them. x is
// saved as the codes for the weight's gradient, half of its size; it is saved unencoded where
// backward makes it again (Note [Remade results] in autograd/remade.h), or where its rows came one
// part after the other, each with its own scale. Codes of weights are made for each product: kept
// from one product to the next they would take half as much memory again as the weights, on every
// stage. The scale of a weight is kept.
class LinearNode final : public Node {
 public:
  static constexpr int kAddend = 1;  // the input of this number

  // `parts`: the rows of each weight, where there are several.
  LinearNode(const LinearOptions& options, std::vector<int64_t> parts)
      : options_(options), parts_(std::move(parts)) {
    options_.in_rows = {};
    options_.addend = {};
  }
  // For 8 bits: the scales of x, if it has one, and of the weight; whether codes of x are saved.
  void set_scales(const Tensor& x, const Tensor& weight, bool saves_codes) {
    x_scale_ = x;
    weight_scale_ = weight;
    saves_codes_ = saves_codes;
  }
  // The numbers of weight and bias of a part.
  static int weight_of(size_t part) { return 2 * static_cast<int>(part); }
  static int bias_of(size_t part) { return weight_of(part) + 1; }
  std::string_view name() const override { return "linear"; }

  // z = x W^T + b:  dz = dy * activation'(z);  db = sum_rows dz;  dW = dz^T x;  dx = dz W
  // The weight's gradient comes first, so that x can go before dx is made.
  void backward(BackwardPass& pass) override {
    RowsUnderWay rows;
    Tensor dz = pass.take_gradient_under_way(0, rows);
    if (options_.activation != Activation::none || options_.slices != nullptr || !pass.needs(0) ||
        pass.needs(kAddend)) {
      std::exchange(rows, {}).wait_for_all();
    }
    if (pass.needs(kAddend)) pass.give(kAddend, dz);
    if (pass.is_behind_derivative()) {
      saved()[1].reset();
    } else if (options_.activation != Activation::none) {
      const Tensor z = pass.take_saved(1);
      Tensor target = dz.is_sole_owner() ? dz : Tensor::empty(dz.shape(), dz.dtype());
      activation_backward(options_.activation, z.view(), dz.view(), target.view());
      dz = std::move(target);
    }
    if (needs_weights(pass)) pass.prepare_saved(0);
    // Where gradients of weights wait for ranks, dx is made first, so that the ranks get it early.
    // If rows of dz are still under way, dx is made from the rows that have come.
    const bool is_under_way = rows.num_parts > 0;
    const bool begins_with_input = pass.hides_weights() || is_under_way;
    const auto codes_of_dz = [&](bool plain, bool transposed) {
      return encode(as_matrix("linear", ConstView(dz.view())), Fp8::e5m2, plain, transposed);
    };
    Codes codes;
    if (options_.fp8 && !is_under_way) codes = codes_of_dz(pass.needs(0), needs_weights(pass));
    if (begins_with_input) give_input_gradient(pass, dz, codes, std::exchange(rows, {}));
    if (options_.fp8 && is_under_way && needs_weights(pass)) codes = codes_of_dz(false, true);
    give_weight_gradients(pass, dz, codes);
    codes.transposed = {};
    if (!begins_with_input) give_input_gradient(pass, std::move(dz), std::move(codes), {});
  }

  bool offers_derivative() const override { return options_.activation != Activation::none; }
  Derivative derivative() override {
    return {.activation = options_.activation, .input = saved()[1].restore()};
  }

  bool can_remake(int) const override { return options_.activation != Activation::none; }
  Tensor remake(int) override {
    const Tensor z = saved()[1].restore();
    Tensor y = Tensor::empty(z.shape(), z.dtype());
    activation_forward(options_.activation, z.view(), y.view());
    return y;
  }

 private:
  bool needs_weights(const BackwardPass& pass) const {
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (pass.weight_needs(weight_of(part))) return true;
    }
    return false;
  }

  void give_weight_gradients(BackwardPass& pass, const Tensor& dz, const Codes& codes) {
    const auto form = form_for_weights(dz.device());
    Tensor x;
    Codes x_codes;
    int64_t first = 0;
    for (size_t part = 0; part < parts_.size(); ++part) {
      const int weight = weight_of(part), bias = bias_of(part);
      const auto of_part = [&](const Tensor& all, int dim) {
        return parts_.size() == 1 ? all : all.narrow_view(dim, first, parts_[part]);
      };
      const Tensor mine = of_part(dz, -1);
      // The product that makes the weight's gradient makes the bias's beside it.
      GradientTarget db;
      if (pass.weight_needs(weight) && pass.weight_needs(bias) && options_.slices == nullptr &&
          !options_.fp8 && pass.makes_at_once(weight) && pass.makes_at_once(bias)) {
        db = pass.weight_gradient(bias);
      } else if (pass.weight_needs(bias)) {
        pass.make_weight_gradient(bias, [mine, options = options_](const GradientTarget& db) {
          bias_backward(options, mine, db);
        });
      }
      if (pass.weight_needs(weight) && options_.fp8) {
        if (!x_codes.scale.defined()) x_codes = take_codes_of_x(pass);
        Codes dz_codes{.format = codes.format, .scale = codes.scale};
        dz_codes.*form = of_part(codes.*form, form == &Codes::transposed ? 0 : -1);
        pass.make_weight_gradient(
            weight, [x_codes, dz_codes, options = options_](const GradientTarget& dw) {
              weight_backward(options, x_codes, dz_codes, dw);
            });
      } else if (pass.weight_needs(weight)) {
        if (!x.defined()) x = pass.take_saved(0);
        pass.make_weight_gradient(weight,
                                  [mine, x, db, options = options_](const GradientTarget& dw) {
                                    weight_backward(options, x, mine, dw, db);
                                  });
      }
      first += parts_[part];
    }
  }

  // Codes of x in the form that the product for the weight's gradient reads.
  Codes take_codes_of_x(BackwardPass& pass) {
    const Tensor saved = pass.take_saved(0);
    if (!saves_codes_) {
      return encode(as_matrix("linear", ConstView(saved.view())), Fp8::e4m3, false, true, x_scale_);
    }
    Codes codes{.format = Fp8::e4m3, .scale = x_scale_};
    codes.*form_for_weights(saved.device()) = saved;
    return codes;
  }

  JoinedValue weight_value(const BackwardPass& pass) const {
    std::vector<WeightValue> values;
    for (size_t part = 0; part < parts_.size(); ++part) {
      values.push_back(pass.weight(weight_of(part)));
    }
    return JoinedValue(std::move(values));
  }

  // `codes`: of all of dz; of dz under way, its parts have their own.
  void give_input_gradient(BackwardPass& pass, Tensor dz, Codes codes,
                           const RowsUnderWay& under_way) {
    if (!pass.needs(0)) return;
    Tensor dx;
    if (options_.slices == nullptr) dx = pass.take_arrived(0, /*to_write=*/true);
    const bool adds = dx.defined();
    std::optional<Derivative> derivative;
    // Rows that are under way travel beside this product. A forward pass that is computed again
    // waits for ranks itself, so it does not come between.
    if (!adds && options_.slices == nullptr)
      derivative = pass.take_derivative(0, under_way.num_parts > 0);
    if (derivative && derivative->gradient.defined()) {
      dx = derivative->gradient;
    } else if (!adds) {
      dx = pass.gradient_memory(0);
    }
    {
      const JoinedValue weight = weight_value(pass);
      const bool by_inputs = is_cut_by_inputs(options_);
      const ConstView dz_rows = as_matrix("linear", ConstView(dz.view()));
      const View dx_rows = as_matrix("linear", dx.view());
      const auto rows_of = [&](const Tensor& of_derivative) {
        return of_derivative.defined() ? as_matrix("linear", of_derivative.view()) : View();
      };
      const View derivative_rows = derivative ? rows_of(derivative->input) : View();
      const View factor = derivative ? rows_of(derivative->factor) : View();
      const View of_factor = derivative ? rows_of(derivative->factor_gradient) : View();
      const auto part_of = [](const View& rows, int64_t begin, int64_t count) {
        return rows ? rows.narrow(0, begin, count) : rows;
      };
      Codes of_weight;
      if (options_.fp8) {
        of_weight = encode(weight.view(), Fp8::e4m3, options_.layout == WeightLayout::in_out,
                           options_.layout == WeightLayout::out_in, weight_scale_);
      }
      under_way.for_each_part(dz_rows.dim(0), [&](int64_t begin, int64_t count) {
        kernels::Gemm product{.a = dz_rows.narrow(0, begin, count),
                              .b = weight.view(),
                              .bias = {},
                              .activation_input = part_of(derivative_rows, begin, count),
                              .factor = part_of(factor, begin, count),
                              .factor_gradient = part_of(of_factor, begin, count),
                              .c = dx_rows.narrow(0, begin, count),
                              .pre_activation = {},
                              .transpose_b = options_.layout == WeightLayout::in_out,
                              .beta = adds ? 1.0 : 0.0,
                              .activation = derivative ? derivative->activation : Activation::none};
        Codes of_part;
        if (options_.fp8) {
          of_part = codes.plain.defined() ? codes : encode(product.a, Fp8::e5m2, true, false);
          take_codes(product, of_part, false, of_weight, product.transpose_b);
        }
        gemm({.whole = product,
              .a = by_inputs ? -1 : 1,
              .b = cut_of_weight(options_),
              .c = by_inputs ? 1 : -1},
             options_.slices.get());
      });
    }
    dz = {};
    codes = {};
    pass.give(0, std::move(dx));
  }
  static void bias_backward(const LinearOptions& options, const Tensor& dz,
                            const GradientTarget& db) {
    const ConstView rows = as_matrix("linear", ConstView(dz.view()));
    const auto sum = [&](const TensorSlice::Piece& piece) {
      kernels::reduce({.op = kernels::ReduceOp::sum,
                       .over = kernels::ReduceOver::leading,
                       .x = rows.narrow(1, piece.begin, piece.count),
                       .y = db.view.narrow(0, piece.begin, piece.count),
                       .accumulate = db.accumulate},
                      compute_stream());
    };
    if (options.slices == nullptr) return sum({0, rows.dim(1)});
    for (const auto& slice : options.slices->slices) std::ranges::for_each(slice, sum);
  }
  static void weight_backward(const LinearOptions& options, const Tensor& x, const Tensor& dz,
                              const GradientTarget& dw, const GradientTarget& db) {
    const bool out_in = options.layout == WeightLayout::out_in;
    const ConstView x_matrix = as_matrix("linear", ConstView(x.view()));
    const ConstView dz_matrix = as_matrix("linear", ConstView(dz.view()));
    const int cut = cut_of_weight(options);
    gemm({.whole = {.a = out_in ? dz_matrix : x_matrix,
                    .b = out_in ? x_matrix : dz_matrix,
                    .bias = {},
                    .activation_input = {},
                    .a_sums = out_in ? db.view : View(),
                    .b_sums = out_in ? View() : db.view,
                    .adds_to_sums = db.accumulate,
                    .c = dw.view,
                    .pre_activation = {},
                    .transpose_a = true,
                    .beta = dw.accumulate ? 1.0 : 0.0},
          .a = cut == 0 ? 1 : -1,
          .b = cut == 1 ? 1 : -1,
          .c = cut},
         options.slices.get());
  }
  // The weight's gradient from operands in 8 bits.
  static void weight_backward(const LinearOptions& options, const Codes& x, const Codes& dz,
                              const GradientTarget& dw) {
    const bool out_in = options.layout == WeightLayout::out_in;
    kernels::Gemm product{.c = dw.view, .beta = dw.accumulate ? 1.0 : 0.0};
    take_codes(product, out_in ? dz : x, true, out_in ? x : dz, false);
    kernels::gemm(product, compute_stream());
  }

  LinearOptions options_;
  std::vector<int64_t> parts_;
  Tensor x_scale_, weight_scale_;
  bool saves_codes_ = false;
};

void check(const Tensor& x, const Weight& weight, const Weight& bias, int64_t in, int64_t out,
           const LinearOptions& options) {
  require(!is_cut_by_inputs(options) || (!bias && options.activation == Activation::none),
          "linear: bias and activation come behind the sum over slices of inputs");
  require(!options.addend.defined() || (options.activation == Activation::none &&
                                        options.slices == nullptr && !options.in_rows),
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
  require(!parts.empty(), "linear: there are no weights");
  require(parts.size() == 1 || (out_in && options.slices == nullptr),
          "linear: several weights are [out, in], and not cut into slices");
  std::vector<int64_t> outs;
  bool records = needs_gradient(x, options.addend);
  for (const auto& [weight, bias] : parts) {
    require(static_cast<bool>(weight) && weight.rank() == 2, "linear: the weight must be a matrix");
    require(static_cast<bool>(bias) == static_cast<bool>(parts.front().bias),
            "linear: of several weights all have a bias, or none has");
    outs.push_back(weight.dim(out_in ? 0 : 1));
    check(x, weight, bias, weight.dim(out_in ? 1 : 0), outs.back(), options);
    records = records || needs_gradient(weight, bias);
  }
  const int64_t out = std::accumulate(outs.begin(), outs.end(), int64_t{0});
  Shape shape = x.shape();
  shape.set(shape.rank() - 1, out);
  const Tensor& addend = options.addend;
  require(!addend.defined() || (addend.shape() == shape && addend.dtype() == x.dtype()),
          "linear: the addend is ", addend.defined() ? str(addend.dtype(), addend.shape()) : "",
          ", the result ", x.dtype(), shape);
  const bool activates = options.activation != Activation::none;

  bool weights_need = false;
  for (const LinearWeight& part : parts) weights_need |= part.weight.requires_grad();
  // Note [Codes of a layer]
  const bool may_save_codes = options.fp8 && records && weights_need && !is_remade(x);
  Codes of_x, of_weight;
  Tensor y = Tensor::empty(shape, x.dtype());
  Tensor z;
  if (records && activates) z = Tensor::empty(shape, x.dtype());
  {
    const JoinedValue w = acquire(parts, &LinearWeight::weight);
    const JoinedValue b = acquire(parts, &LinearWeight::bias);
    const bool by_inputs = is_cut_by_inputs(options);
    const ConstView x_rows = as_matrix("linear", ConstView(x.view()));
    const View y_rows = as_matrix("linear", y.view());
    const View z_rows = z.defined() ? as_matrix("linear", z.view()) : View();
    if (options.fp8) of_weight = encode(w.view(), Fp8::e4m3, out_in, !out_in);
    const auto make = [&](int64_t begin, int64_t count) {
      kernels::Gemm product{
          .a = x_rows.narrow(0, begin, count),
          .b = w.view(),
          .bias = b.view(),
          .activation_input = {},
          .addend = addend.defined() ? as_matrix("linear", ConstView(addend.view())) : ConstView(),
          .c = y_rows.narrow(0, begin, count),
          .pre_activation = z_rows ? z_rows.narrow(0, begin, count) : View(),
          .transpose_b = out_in,
          .beta = addend.defined() ? 1.0 : 0.0,
          .activation = options.activation};
      Codes of_part;
      if (options.fp8) {
        const bool is_whole = count == x_rows.dim(0);
        of_part = encode(product.a, Fp8::e4m3, true, is_whole && may_save_codes);
        take_codes(product, of_part, false, of_weight, out_in);
        if (is_whole) of_x = of_part;
      }
      gemm({.whole = product,
            .a = by_inputs ? 1 : -1,
            .b = cut_of_weight(options),
            .c = by_inputs ? -1 : 1},
           options.slices.get());
    };
    if (options.in_rows) {
      options.in_rows(y, make);
    } else {
      make(0, y_rows.dim(0));
    }
  }
  if (records) {
    auto node = make_node<LinearNode>(options, std::move(outs));
    const bool saves_codes = may_save_codes && of_x.scale.defined();
    node->set_scales(of_x.scale, of_weight.scale, saves_codes);
    node->add_input(x);
    node->add_input(addend);
    for (const auto& [weight, bias] : parts) {
      node->add_weight(weight, x.requires_grad());
      node->add_weight(bias, false);
    }
    node->save(!weights_need ? Tensor() : saves_codes ? of_x.*form_for_weights(x.device()) : x);
    node->save(z);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
