#include "autograd/ops/dropout.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/ops/binary.h"
#include "autograd/recorded_draws.h"
#include "kernels/dropout.h"

namespace zinc::autograd {
namespace {

// Inputs: x and, where there is one, the residual.
class DropoutNode final : public Node {
 public:
  DropoutNode(double probability, const Draw& drawn, bool has_residual)
      : probability_(probability), drawn_(drawn), has_residual_(has_residual) {}
  std::string_view name() const override { return has_residual_ ? "dropout_residual" : "dropout"; }

  // dx = dropout(dy) under the same key; dresidual = dy
  void backward(BackwardPass& pass) override {
    Tensor dy = pass.take_gradient(0);
    if (has_residual_ && pass.needs(1)) pass.give(1, dy);
    if (!pass.needs(0)) return;
    Tensor dx = dy.is_sole_owner() ? dy : pass.gradient_memory(0);
    kernels::dropout({.x = dy.view(),
                      .y = dx.view(),
                      .p = probability_,
                      .key = drawn_.key,
                      .counter = drawn_.counter},
                     compute_stream());
    dy = {};
    pass.give(0, std::move(dx));
  }

 private:
  double probability_;
  Draw drawn_;
  bool has_residual_;
};

Draw draw_mask(std::string_view op, const DropoutOptions& options) {
  require(options.probability >= 0 && options.probability <= 1, op,
          ": the probability must be in [0, 1], not ", options.probability);
  return draw(options.site);
}

}  // namespace

Tensor dropout(const Tensor& x, const DropoutOptions& options) {
  if (options.probability == 0) return x;
  const Draw drawn = draw_mask("dropout", options);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::dropout({.x = x.view(),
                    .y = y.view(),
                    .p = options.probability,
                    .key = drawn.key,
                    .counter = drawn.counter},
                   compute_stream());
  if (needs_gradient(x)) {
    auto node = make_node<DropoutNode>(options.probability, drawn, false);
    node->add_input(x);
    node->set_output(y);
  }
  return y;
}

Tensor dropout_residual(const Tensor& x, const Tensor& residual, const DropoutOptions& options) {
  require(x.shape() == residual.shape() && x.dtype() == residual.dtype(),
          "dropout_residual: x and residual differ: ", x.dtype(), x.shape(), " vs ",
          residual.dtype(), residual.shape());
  if (options.probability == 0) return add(residual, x);
  const Draw drawn = draw_mask("dropout_residual", options);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::dropout_residual({.x = x.view(),
                             .residual = residual.view(),
                             .y = y.view(),
                             .p = options.probability,
                             .key = drawn.key,
                             .counter = drawn.counter},
                            compute_stream());
  if (needs_gradient(x, residual)) {
    auto node = make_node<DropoutNode>(options.probability, drawn, true);
    node->add_input(x);
    node->add_input(residual);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
