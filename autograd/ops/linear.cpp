#include "autograd/ops/linear.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/view_shapes.h"
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

// The largest magnitude of a tensor that several products take in 8 bits. The first of them, in the
// order of the compute stream, finds it.
class Largest {
 public:
  // [1] f32; absent in products that are not of 8 bits. `is_whole`: the product takes all of the
  // tensor; else it scales what it takes by itself.
  View place(bool in_8_bits, bool is_whole) {
    if (!in_8_bits || !is_whole) return {};
    if (!value_.defined()) value_ = Tensor::empty(Shape{1}, DType::f32);
    return value_.view();
  }
  // Whether an earlier product has found it; from now on one has.
  bool find(const View& place) { return place && std::exchange(is_known_, true); }

 private:
  Tensor value_;
  bool is_known_ = false;
};

class LinearNode final : public Node {
 public:
  static constexpr int kAddend = 1;  // the input of this number

  // `parts`: the rows of each weight, where there are several.
  LinearNode(const LinearOptions& options, std::vector<int64_t> parts, const Largest& x,
             const Largest& weight)
      : options_(options), parts_(std::move(parts)), x_largest_(x), weight_largest_(weight) {
    options_.in_rows = {};
    options_.addend = {};
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
    if (pass.is_behind_slope()) {
      saved()[1].reset();
    } else if (options_.activation != Activation::none) {
      const Tensor z = pass.take_saved(1);
      Tensor target = dz.is_sole_owner() ? dz : Tensor::empty(dz.shape(), dz.dtype());
      activation_backward(options_.activation, z.view(), dz.view(), target.view());
      dz = std::move(target);
    }
    if (needs_weights(pass)) pass.prepare_saved(0);
    // Where weights wait for ranks, those get dx as soon as they can; where dz is under way, dx is
    // made of the rows that are here.
    const bool begins_with_input = pass.hides_weights() || rows.num_parts > 0;
    const auto dz_largest = std::make_shared<Largest>();
    if (begins_with_input) give_input_gradient(pass, dz, *dz_largest, std::exchange(rows, {}));
    if (parts_.size() == 1) {
      give_weight_gradients(pass, 0, dz, dz_largest);
    } else {
      int64_t first = 0;
      for (size_t part = 0; part < parts_.size(); ++part) {
        const Tensor columns = dz.narrow_view(-1, first, parts_[part]);
        give_weight_gradients(pass, part, columns, std::make_shared<Largest>());  // a scale of each
        first += parts_[part];
      }
    }
    if (!begins_with_input) give_input_gradient(pass, std::move(dz), *dz_largest, {});
  }

  bool offers_slope() const override { return options_.activation != Activation::none; }
  Slope slope() override {
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

  // Of one part, whose columns of dz are here.
  void give_weight_gradients(BackwardPass& pass, size_t part, const Tensor& dz,
                             const std::shared_ptr<Largest>& dz_largest) {
    const int weight = weight_of(part), bias = bias_of(part);
    // The product that makes the weight's gradient makes the bias's beside it.
    GradientTarget db;
    if (pass.weight_needs(weight) && pass.weight_needs(bias) && options_.slices == nullptr &&
        pass.makes_at_once(weight) && pass.makes_at_once(bias)) {
      db = pass.weight_gradient(bias);
    } else if (pass.weight_needs(bias)) {
      pass.make_weight_gradient(bias, [dz, options = options_](const GradientTarget& db) {
        bias_backward(options, dz, db);
      });
    }
    if (!pass.weight_needs(weight)) return;
    Tensor x = part + 1 == parts_.size() ? pass.take_saved(0) : pass.saved(0);
    pass.make_weight_gradient(weight, [dz, dz_largest, x = std::move(x), x_largest = x_largest_, db,
                                       options = options_](const GradientTarget& dw) mutable {
      weight_backward(options, x, x_largest, dz, *dz_largest, dw, db);
    });
  }

  JoinedValue weight_value(const BackwardPass& pass) const {
    std::vector<WeightValue> values;
    for (size_t part = 0; part < parts_.size(); ++part) {
      values.push_back(pass.weight(weight_of(part)));
    }
    return JoinedValue(std::move(values));
  }

  void give_input_gradient(BackwardPass& pass, Tensor dz, Largest& dz_largest,
                           const RowsUnderWay& under_way) {
    if (!pass.needs(0)) return;
    Tensor dx;
    if (options_.slices == nullptr) dx = pass.take_arrived(0, /*to_write=*/true);
    const bool adds = dx.defined();
    std::optional<Slope> slope;
    // Rows that are under way travel beside this product. A forward pass that is computed again
    // waits for ranks itself, so it does not come between.
    if (!adds && options_.slices == nullptr) slope = pass.take_slope(0, under_way.num_parts > 0);
    if (slope && slope->gradient.defined()) {
      dx = slope->gradient;
    } else if (!adds) {
      dx = pass.gradient_memory(0);
    }
    {
      const JoinedValue weight = weight_value(pass);
      const bool by_inputs = is_cut_by_inputs(options_);
      const ConstView dz_rows = as_matrix("linear", ConstView(dz.view()));
      const View dx_rows = as_matrix("linear", dx.view());
      const auto rows_of = [&](const Tensor& of_slope) {
        return of_slope.defined() ? as_matrix("linear", of_slope.view()) : View();
      };
      const View slope_rows = slope ? rows_of(slope->input) : View();
      const View factor = slope ? rows_of(slope->factor) : View();
      const View of_factor = slope ? rows_of(slope->factor_gradient) : View();
      const auto part_of = [](const View& rows, int64_t begin, int64_t count) {
        return rows ? rows.narrow(0, begin, count) : rows;
      };
      const View w_largest = weight_largest_.place(options_.fp8, true);
      under_way.for_each_part(dz_rows.dim(0), [&](int64_t begin, int64_t count) {
        const View largest = dz_largest.place(options_.fp8, count == dz_rows.dim(0));
        gemm({.whole = {.a = dz_rows.narrow(0, begin, count),
                        .b = weight.view(),
                        .bias = {},
                        .activation_input = part_of(slope_rows, begin, count),
                        .factor = part_of(factor, begin, count),
                        .factor_gradient = part_of(of_factor, begin, count),
                        .c = dx_rows.narrow(0, begin, count),
                        .pre_activation = {},
                        .transpose_b = options_.layout == WeightLayout::in_out,
                        .beta = adds ? 1.0 : 0.0,
                        .activation = slope ? slope->activation : Activation::none,
                        .a_fp8 = options_.fp8 ? Fp8::e5m2 : Fp8::none,
                        .b_fp8 = options_.fp8 ? Fp8::e4m3 : Fp8::none,
                        .a_largest = largest,
                        .b_largest = w_largest,
                        .a_largest_known = dz_largest.find(largest),
                        .b_largest_known = weight_largest_.find(w_largest)},
              .a = by_inputs ? -1 : 1,
              .b = cut_of_weight(options_),
              .c = by_inputs ? 1 : -1},
             options_.slices.get());
      });
    }
    dz = {};
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
  static void weight_backward(const LinearOptions& options, const Tensor& x, Largest& x_largest,
                              const Tensor& dz, Largest& dz_largest, const GradientTarget& dw,
                              const GradientTarget& db) {
    const bool out_in = options.layout == WeightLayout::out_in;
    const ConstView x_matrix = as_matrix("linear", ConstView(x.view()));
    const ConstView dz_matrix = as_matrix("linear", ConstView(dz.view()));
    const int cut = cut_of_weight(options);
    const Fp8 of_dz = options.fp8 ? Fp8::e5m2 : Fp8::none;
    const Fp8 of_x = options.fp8 ? Fp8::e4m3 : Fp8::none;
    const View place_of_x = x_largest.place(options.fp8, true);
    const View place_of_dz = dz_largest.place(options.fp8, true);
    const bool knows_x = x_largest.find(place_of_x), knows_dz = dz_largest.find(place_of_dz);
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
                    .beta = dw.accumulate ? 1.0 : 0.0,
                    .a_fp8 = out_in ? of_dz : of_x,
                    .b_fp8 = out_in ? of_x : of_dz,
                    .a_largest = out_in ? place_of_dz : place_of_x,
                    .b_largest = out_in ? place_of_x : place_of_dz,
                    .a_largest_known = out_in ? knows_dz : knows_x,
                    .b_largest_known = out_in ? knows_x : knows_dz},
          .a = cut == 0 ? 1 : -1,
          .b = cut == 1 ? 1 : -1,
          .c = cut},
         options.slices.get());
  }

  LinearOptions options_;
  std::vector<int64_t> parts_;
  Largest x_largest_, weight_largest_;
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

  Largest x_largest, weight_largest;
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
    const View w_largest = weight_largest.place(options.fp8 && records, true);
    const auto make = [&](int64_t begin, int64_t count) {
      const View largest = x_largest.place(options.fp8 && records, count == x_rows.dim(0));
      gemm({.whole = {.a = x_rows.narrow(0, begin, count),
                      .b = w.view(),
                      .bias = b.view(),
                      .activation_input = {},
                      .addend = addend.defined() ? as_matrix("linear", ConstView(addend.view()))
                                                 : ConstView(),
                      .c = y_rows.narrow(0, begin, count),
                      .pre_activation = z_rows ? z_rows.narrow(0, begin, count) : View(),
                      .transpose_b = out_in,
                      .beta = addend.defined() ? 1.0 : 0.0,
                      .activation = options.activation,
                      .a_fp8 = options.fp8 ? Fp8::e4m3 : Fp8::none,
                      .b_fp8 = options.fp8 ? Fp8::e4m3 : Fp8::none,
                      .a_largest = largest,
                      .b_largest = w_largest,
                      .a_largest_known = x_largest.find(largest),
                      .b_largest_known = weight_largest.find(w_largest)},
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
    auto node = make_node<LinearNode>(options, std::move(outs), x_largest, weight_largest);
    node->add_input(x);
    node->add_input(addend);
    bool weights_need = false;
    for (const auto& [weight, bias] : parts) {
      node->add_weight(weight, x.requires_grad());
      node->add_weight(bias, false);
      weights_need = weights_need || weight.requires_grad();
    }
    node->save(weights_need ? x : Tensor());
    node->save(z);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
