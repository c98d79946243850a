#include "autograd/ops/norm.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/layernorm.h"
#include "kernels/residual_norm.h"
#include "kernels/rmsnorm.h"

namespace zinc::autograd {
namespace {

using kernels::NormKind;

std::string_view op_name(NormKind kind, bool with_residual) {
  if (with_residual) return kind == NormKind::layer ? "residual_layernorm" : "residual_rmsnorm";
  return kind == NormKind::layer ? "layernorm" : "rmsnorm";
}

DType statistics_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

Shape leading_shape(const Tensor& x) {
  Shape shape;
  for (int d = 0; d + 1 < x.rank(); ++d) shape.push_back(x.dim(d));
  return shape;
}

struct Statistics {
  Tensor mean, rstd;
  View mean_view() const { return mean.defined() ? mean.view() : View(); }
  View rstd_view() const { return rstd.defined() ? rstd.view() : View(); }
};

void normalise(NormKind kind, const Tensor& x, const WeightValue& gamma, const WeightValue& beta,
               const Statistics& statistics, double eps, const Tensor& y) {
  if (kind == NormKind::layer) {
    kernels::layernorm_forward({.x = x.view(),
                                .gamma = gamma.view(),
                                .beta = beta.view(),
                                .y = y.view(),
                                .mean = statistics.mean_view(),
                                .rstd = statistics.rstd_view(),
                                .eps = eps},
                               compute_stream());
  } else {
    kernels::rmsnorm_forward({.x = x.view(),
                              .gamma = gamma.view(),
                              .y = y.view(),
                              .rstd = statistics.rstd_view(),
                              .eps = eps},
                             compute_stream());
  }
}

// Weights: gamma, beta. Saved: the input of the norm, rstd, mean (layer only). Outputs: the result;
// with a residual: the sum, the result.
class NormNode final : public Node {
 public:
  NormNode(NormKind kind, bool with_residual, double eps)
      : kind_(kind), with_residual_(with_residual), eps_(eps) {}
  std::string_view name() const override { return op_name(kind_, with_residual_); }

  void backward(BackwardPass& pass) override {
    const int result = with_residual_ ? 1 : 0;
    // The gradient that reaches the sum, or the input of a plain norm, by the residual stream.
    Tensor past_norm;
    if (!with_residual_) {
      past_norm = pass.take_arrived(0, /*to_write=*/false);
    } else if (pass.has_gradient(0)) {
      past_norm = pass.take_gradient(0);
    }
    Tensor dx;
    if (pass.has_gradient(result)) {
      dx = backward_of_norm(pass, pass.take_gradient(result), past_norm);
    } else {
      dx = std::move(past_norm);
    }
    past_norm = {};
    if (with_residual_ && pass.needs(1)) pass.give(1, dx);
    if (pass.needs(0)) pass.give(0, std::move(dx));
  }

  bool can_remake(int output) const override {
    return output == (with_residual_ ? 1 : 0) && can_read(0) && can_read(1);
  }
  Tensor remake(int) override {
    const Tensor x = saved()[0].restore();
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    const WeightValue gamma = values_of(0);
    const WeightValue beta = values_of(1);
    normalise(kind_, x, gamma, beta, {}, eps_, y);
    return y;
  }

 private:
  Tensor backward_of_norm(BackwardPass& pass, Tensor dy, const Tensor& dresidual) const {
    const Tensor x = pass.take_saved(0);
    const Tensor rstd = pass.take_saved(1);
    const Tensor mean = kind_ == NormKind::layer ? pass.take_saved(2) : Tensor();
    Tensor dx = dy.is_sole_owner() ? dy : Tensor::empty(dy.shape(), dy.dtype());
    const WeightValue gamma = pass.weight(0);
    GradientTarget dgamma;
    GradientTarget dbeta;
    if (pass.weight_needs(0)) dgamma = pass.weight_gradient(0);
    if (pass.weight_needs(1)) dbeta = pass.weight_gradient(1);
    Tensor workspace;
    if (dgamma.view || dbeta.view) {
      const View& v = x.view();
      workspace = Tensor::empty(Shape{kernels::norm_backward_workspace_bytes(
                                    v.rows(), v.cols(), v.dtype(), v.device().kind)},
                                DType::u8, Label::workspace);
    }
    const ConstView past = dresidual.defined() ? ConstView(dresidual.view()) : ConstView();
    const View scratch = workspace.defined() ? workspace.view() : View();
    if (kind_ == NormKind::layer) {
      kernels::layernorm_backward({.dy = dy.view(),
                                   .x = x.view(),
                                   .gamma = gamma.view(),
                                   .mean = mean.view(),
                                   .rstd = rstd.view(),
                                   .dresidual = past,
                                   .dx = dx.view(),
                                   .dgamma = dgamma.view,
                                   .dbeta = dbeta.view,
                                   .accumulate_dgamma = dgamma.accumulate,
                                   .accumulate_dbeta = dbeta.accumulate,
                                   .workspace = scratch},
                                  compute_stream());
    } else {
      kernels::rmsnorm_backward({.dy = dy.view(),
                                 .x = x.view(),
                                 .gamma = gamma.view(),
                                 .rstd = rstd.view(),
                                 .dresidual = past,
                                 .dx = dx.view(),
                                 .dgamma = dgamma.view,
                                 .accumulate_dgamma = dgamma.accumulate,
                                 .workspace = scratch},
                                compute_stream());
    }
    return dx;
  }

  NormKind kind_;
  bool with_residual_;
  double eps_;
};

Statistics make_statistics(NormKind kind, const Tensor& x) {
  Statistics statistics;
  const DType dtype = statistics_dtype(x.dtype());
  statistics.rstd = Tensor::empty(leading_shape(x), dtype);
  if (kind == NormKind::layer) statistics.mean = Tensor::empty(leading_shape(x), dtype);
  return statistics;
}

void check(std::string_view op, const Tensor& x, const Weight& gamma, const Weight& beta) {
  require(x.rank() >= 1, op, ": x must have at least one dimension");
  const Shape expected{x.dim(-1)};
  require(static_cast<bool>(gamma) && gamma.shape() == expected, op, ": gamma must have shape ",
          expected, gamma ? str(", not ", gamma.shape()) : std::string(" and is absent"));
  require(!beta || beta.shape() == expected, op, ": beta must have shape ", expected,
          beta ? str(", not ", beta.shape()) : std::string());
  require(gamma.dtype() == x.dtype() && (!beta || beta.dtype() == x.dtype()), op,
          ": gamma and beta must be ", x.dtype(), " as x is");
}

template <class Operands>
void record(NormKind kind, bool with_residual, const Operands& operands, const Tensor& normalised,
            const Weight& gamma, const Weight& beta, double eps, const Statistics& statistics,
            std::initializer_list<Tensor*> outputs) {
  auto node = make_node<NormNode>(kind, with_residual, eps);
  for (const Tensor* operand : operands) node->add_input(*operand);
  node->add_weight(gamma, true);
  node->add_weight(beta, true);
  node->save(normalised);
  node->save(statistics.rstd);
  if (kind == NormKind::layer) node->save(statistics.mean);
  for (Tensor* output : outputs) node->set_output(*output);
}

Tensor norm(NormKind kind, const Tensor& x, const Weight& gamma, const Weight& beta, double eps) {
  check(op_name(kind, false), x, gamma, beta);
  const bool records = needs_gradient(x, gamma, beta);
  const Statistics statistics = records ? make_statistics(kind, x) : Statistics();
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  {
    const WeightValue g = gamma.acquire();
    const WeightValue b = beta.acquire();
    normalise(kind, x, g, b, statistics, eps, y);
  }
  if (records) {
    record(kind, false, std::initializer_list<const Tensor*>{&x}, x, gamma, beta, eps, statistics,
           {&y});
  }
  return y;
}

ResidualNorm residual_norm(NormKind kind, const Tensor& x, const Tensor& residual,
                           const Weight& gamma, const Weight& beta, double eps) {
  const std::string_view op = op_name(kind, true);
  check(op, x, gamma, beta);
  require(residual.shape() == x.shape() && residual.dtype() == x.dtype(), op,
          ": x and residual differ: ", x.dtype(), x.shape(), " vs ", residual.dtype(),
          residual.shape());
  const bool records = needs_gradient(x, residual, gamma, beta);
  const Statistics statistics = records ? make_statistics(kind, x) : Statistics();
  ResidualNorm result{.sum = Tensor::empty(x.shape(), x.dtype()),
                      .normed = Tensor::empty(x.shape(), x.dtype())};
  {
    const WeightValue g = gamma.acquire();
    const WeightValue b = beta.acquire();
    kernels::residual_norm_forward({.kind = kind,
                                    .x = x.view(),
                                    .residual = residual.view(),
                                    .gamma = g.view(),
                                    .beta = b.view(),
                                    .sum = result.sum.view(),
                                    .y = result.normed.view(),
                                    .mean = statistics.mean_view(),
                                    .rstd = statistics.rstd_view(),
                                    .eps = eps},
                                   compute_stream());
  }
  if (records) {
    record(kind, true, std::initializer_list<const Tensor*>{&x, &residual}, result.sum, gamma, beta,
           eps, statistics, {&result.sum, &result.normed});
  }
  return result;
}

}  // namespace

Tensor layernorm(const Tensor& x, const Weight& gamma, const Weight& beta, double eps) {
  if (gamma || x.rank() == 0) return norm(NormKind::layer, x, gamma, beta, eps);
  const Tensor ones = Tensor::full(Shape{x.dim(-1)}, 1.0, x.dtype());
  return norm(NormKind::layer, x, ones, beta, eps);
}

Tensor rmsnorm(const Tensor& x, const Weight& gamma, double eps) {
  return norm(NormKind::rms, x, gamma, {}, eps);
}

ResidualNorm residual_layernorm(const Tensor& x, const Tensor& residual, const Weight& gamma,
                                const Weight& beta, double eps) {
  return residual_norm(NormKind::layer, x, residual, gamma, beta, eps);
}

ResidualNorm residual_rmsnorm(const Tensor& x, const Tensor& residual, const Weight& gamma,
                              double eps) {
  return residual_norm(NormKind::rms, x, residual, gamma, {}, eps);
}

}  // namespace zinc::autograd
