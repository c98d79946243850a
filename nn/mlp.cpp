#include "nn/mlp.h"

#include "autograd/ops/swiglu.h"
#include "autograd/ops/unary.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {
namespace {

autograd::Activation epilogue(MlpActivation activation) {
  switch (activation) {
    case MlpActivation::gelu_tanh:
      return autograd::Activation::gelu_tanh;
    case MlpActivation::gelu_erf:
      return autograd::Activation::gelu_erf;
    case MlpActivation::silu:
      return autograd::Activation::silu;
    case MlpActivation::relu:
      return autograd::Activation::none;
  }
  return autograd::Activation::none;
}

LinearOptions gated(const GatedMlpOptions& options, Split split) {
  const bool is_rows = split == Split::rows;
  return {.in = is_rows ? options.hidden : options.features,
          .out = is_rows ? options.features : options.hidden,
          .bias = options.bias,
          .initializer = options.initializer,
          .split = split,
          .spread = true};
}

}  // namespace

Mlp::Mlp(Module& parent, std::string name, const MlpOptions& options)
    : Module(parent, std::move(name)),
      relu_(options.activation == MlpActivation::relu),
      c_fc_(*this, options.inner_name,
            {.in = options.features,
             .out = options.hidden,
             .bias = options.bias,
             .layout = options.layout,
             .activation = epilogue(options.activation),
             .initializer = options.initializer,
             .split = Split::columns}),
      c_proj_(*this, options.output_name,
              {.in = options.hidden,
               .out = options.features,
               .bias = options.bias,
               .layout = options.layout,
               .initializer = options.output_initializer,
               .split = Split::rows}),
      dropout_(*this, "dropout", options.dropout) {}

Tensor Mlp::inner(const Tensor& x) {
  const Tensor hidden = c_fc_.forward(x);
  return relu_ ? autograd::relu(hidden) : hidden;
}

Tensor Mlp::forward(const Tensor& x) { return dropout_.forward(c_proj_.forward(inner(x))); }

ResidualSum Mlp::forward_onto(const Tensor& residual, const Tensor& x) {
  return c_proj_.forward_onto(residual, inner(x), &dropout_);
}

GatedMlp::GatedMlp(Module& parent, std::string name, const GatedMlpOptions& options)
    : Module(parent, std::move(name)),
      gate_proj_(*this, "gate_proj", gated(options, Split::columns)),
      up_proj_(*this, "up_proj", gated(options, Split::columns)),
      down_proj_(*this, "down_proj", gated(options, Split::rows)) {}

Tensor GatedMlp::inner(const Tensor& x) {
  if (const Tensor packed = Linear::as_one_product(x, {&gate_proj_, &up_proj_}); packed.defined()) {
    return autograd::swiglu(packed);
  }
  const std::vector<Tensor> hidden = Linear::of_one_input(x, {&gate_proj_, &up_proj_});
  return autograd::swiglu(hidden[0], hidden[1]);
}

Tensor GatedMlp::forward(const Tensor& x) { return down_proj_.forward(inner(x)); }

ResidualSum GatedMlp::forward_onto(const Tensor& residual, const Tensor& x) {
  return down_proj_.forward_onto(residual, inner(x));
}

PackedGatedMlp::PackedGatedMlp(Module& parent, std::string name,
                               const PackedGatedMlpOptions& options)
    : Module(parent, std::move(name)),
      gate_up_proj_(*this, options.inner_name,
                    {.in = options.features,
                     .out = 2 * options.hidden,
                     .bias = options.bias,
                     .initializer = options.initializer,
                     .split = Split::columns,
                     .sections = {options.hidden, options.hidden}}),
      down_proj_(*this, options.output_name,
                 {.in = options.hidden,
                  .out = options.features,
                  .bias = options.bias,
                  .initializer = options.initializer,
                  .split = Split::rows}),
      dropout_(*this, "dropout", options.dropout) {}

Tensor PackedGatedMlp::forward(const Tensor& x) {
  return dropout_.forward(down_proj_.forward(autograd::swiglu(gate_up_proj_.forward(x))));
}

ResidualSum PackedGatedMlp::forward_onto(const Tensor& residual, const Tensor& x) {
  return down_proj_.forward_onto(residual, autograd::swiglu(gate_up_proj_.forward(x)), &dropout_);
}

}  // namespace zinc::nn
