#include "nn/linear.h"

#include <cmath>
#include <utility>

#include "autograd/ops/binary.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/ops/value.h"
#include "core/error.h"
#include "nn/dropout.h"
#include "nn/lora.h"
#include "nn/model.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {
namespace {

LinearOptions checked(const LinearOptions& options, const std::string& path) {
  require(options.in > 0 && options.out > 0, path, ": a linear layer needs positive sizes, not ",
          options.in, " -> ", options.out);
  require(options.split != Split::rows || options.activation == autograd::Activation::none, path,
          ": an activation comes behind the sum of Split::rows, not before it");
  return options;
}

autograd::Initializer default_initializer(int64_t in) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(in));
  return autograd::Initializer::uniform(-bound, bound);
}

Shape weight_shape(const LinearOptions& options) {
  return options.layout == autograd::WeightLayout::out_in ? Shape{options.out, options.in}
                                                          : Shape{options.in, options.out};
}

}  // namespace

void use_fp8(Module& model, bool fp8) {
  auto* whole = dynamic_cast<Model*>(&model);
  Linear* logits = whole == nullptr ? nullptr : whole->logits_layer();
  for (Module* module : model.modules()) {
    auto* linear = dynamic_cast<Linear*>(module);
    if (linear != nullptr && linear != logits) linear->set_fp8(fp8);
  }
}

Tensor shared_cross_entropy(TensorRanks& ranks, const Tensor& hidden, Parameter& weight,
                            const Tensor& labels, const autograd::Weight& bias) {
  const int64_t classes = weight.whole_shape()[0];
  const autograd::ClassShare share{
      .slice = {.first = weight.slice() ? weight.slice()->pieces.front().begin : 0,
                .total = classes},
      .combine = [&ranks](const Tensor& lse, const Tensor& loss,
                          const Tensor& of_rows) { ranks.combine_losses(lse, loss, of_rows); },
      .slices = ranks.slices_of({classes}, false)};
  return autograd::linear_cross_entropy(enter(&ranks, hidden), weight, labels, bias,
                                        autograd::HeadGradient::in_backward, share);
}

Linear::Linear(Module& parent, std::string name, const LinearOptions& options)
    : Module(parent, std::move(name)),
      options_(checked(options, path())),
      weight_(*this, "weight", weight_shape(options),
              options.initializer.value_or(default_initializer(options.in))) {
  if (options.bias) {
    bias_.emplace(
        *this, "bias", Shape{options.out},
        options.initializer ? autograd::Initializer::zeros() : default_initializer(options.in));
  }
}

Linear::~Linear() = default;

void Linear::on_share() {
  TensorRanks* ranks = tensor_ranks();
  std::optional<TensorSlice> of_weight, of_bias;
  slices_ = nullptr;
  if (ranks != nullptr && options_.split != Split::none) {
    require(adapter_ == nullptr || adapter_->magnitude() == nullptr, path(),
            ": a layer with a DoRA adapter cannot be sliced over ranks; take LoRA, or "
            "zinc.mesh.tensor 1");
    require(!weight_.block_format().has_value(), path(),
            ": a quantized layer cannot be sliced over ranks");
    const bool is_columns = options_.split == Split::columns;
    const bool is_first = is_columns == (options_.layout == autograd::WeightLayout::out_in);
    std::vector<int64_t> sections = options_.sections;
    if (sections.empty()) sections = {is_columns ? options_.out : options_.in};
    slices_ = ranks->slices_of(sections, !is_columns);
    if (ranks->size() > 1) {
      of_weight = TensorSlice::of(weight_.whole_shape(), is_first ? 0 : 1, sections, ranks->rank(),
                                  ranks->size());
      if (is_columns) {
        of_bias = TensorSlice::of(Shape{options_.out}, 0, sections, ranks->rank(), ranks->size());
      }
    }
  }
  weight_.set_slice(of_weight);
  if (bias_) bias_->set_slice(of_bias);
}

Tensor Linear::forward(const Tensor& x) {
  return adapter_ != nullptr ? adapter_->forward(x) : plain(x, options_.activation);
}

Tensor ResidualSum::value() const { return term.defined() ? autograd::add(x, term) : x; }

ResidualSum Linear::forward_onto(const Tensor& residual, const Tensor& x, Dropout* dropout) {
  if ((dropout != nullptr && dropout->drops()) || adapter_ != nullptr ||
      tensor_ranks() != nullptr || options_.activation != autograd::Activation::none) {
    const Tensor y = forward(x);
    return {.x = residual, .term = dropout == nullptr ? y : dropout->forward(y)};
  }
  return {.x = autograd::linear(x, weight_, bias(),
                                {.layout = options_.layout, .fp8 = fp8_, .addend = residual})};
}

std::vector<Tensor> Linear::of_one_input(const Tensor& x, std::initializer_list<Linear*> layers) {
  std::vector<Tensor> results;
  Linear& first = **layers.begin();
  TensorRanks* ranks = first.tensor_ranks();
  const bool in_rows = ranks != nullptr && first.adapter_ == nullptr && first.slices_ == nullptr;
  const Tensor input =
      in_rows ? ranks->enter_product(x,
                                     [&](const Tensor& all, TensorRanks::InRows rows) {
                                       results.push_back(first.columns(
                                           all, first.options_.activation, std::move(rows)));
                                     })
              : enter(ranks, x);
  for (Linear* layer : layers) {
    if (layer != &first || !in_rows) results.push_back(layer->forward(input));
  }
  return results;
}

Tensor Linear::as_one_product(const Tensor& x, std::initializer_list<Linear*> layers) {
  const Linear& first = **layers.begin();
  std::vector<autograd::LinearWeight> parts;
  for (Linear* layer : layers) {
    if (layer->tensor_ranks() != nullptr || layer->adapter_ != nullptr ||
        layer->weight_.block_format().has_value() ||
        layer->options_.layout != autograd::WeightLayout::out_in ||
        layer->options_.activation != autograd::Activation::none ||
        layer->weight_.requires_grad() != first.weight_.requires_grad() ||
        layer->options_.bias != first.options_.bias || layer->fp8_ != first.fp8_) {
      return {};
    }
    parts.push_back({.weight = layer->weight_, .bias = layer->bias()});
  }
  return autograd::linear(x, parts, {.fp8 = first.fp8_});
}

Tensor Linear::plain(const Tensor& x, autograd::Activation activation) {
  TensorRanks* ranks = tensor_ranks();
  if (ranks != nullptr && options_.split == Split::rows) {
    const auto product = [&](TensorRanks::InRows in_rows) {
      return autograd::linear(x, weight_, {},
                              {.layout = options_.layout,
                               .slices = slices_,
                               .in_rows = std::move(in_rows),
                               .fp8 = fp8_});
    };
    const Tensor y = slices_ == nullptr ? ranks->leave_product(product) : product({});
    return bias_ ? autograd::add(y, autograd::value(own_weight(ranks, *bias_))) : y;
  }
  if (ranks != nullptr && options_.split == Split::columns && !options_.spread) {
    if (slices_ != nullptr) return columns(enter(ranks, x), activation);
    Tensor y;
    ranks->enter_product(x, [&](const Tensor& all, TensorRanks::InRows in_rows) {
      y = columns(all, activation, std::move(in_rows));
    });
    return y;
  }
  if (options_.split == Split::none) {
    return autograd::linear(x, own_weight(ranks, weight_), own_weight(ranks, bias()),
                            {.layout = options_.layout, .activation = activation, .fp8 = fp8_});
  }
  return columns(x, activation);
}

Tensor Linear::columns(const Tensor& x, autograd::Activation activation,
                       TensorRanks::InRows in_rows) {
  return autograd::linear(x, weight_, bias(),
                          {.layout = options_.layout,
                           .activation = activation,
                           .slices = slices_,
                           .in_rows = std::move(in_rows),
                           .fp8 = fp8_});
}

Tensor Linear::cross_entropy(const Tensor& x, const Tensor& labels) {
  if (adapter_ != nullptr) {
    require(!weight_.slice(), path(), ": a head with an adapter cannot be sliced over ranks");
    return autograd::cross_entropy(adapter_->forward(x), labels);
  }
  require(options_.layout == autograd::WeightLayout::out_in &&
              options_.activation == autograd::Activation::none,
          path(), ": cross_entropy() is of a layer [out, in] without an activation");
  if (tensor_ranks() != nullptr && options_.split == Split::columns) {
    return shared_cross_entropy(*tensor_ranks(), x, weight_, labels, bias());
  }
  return autograd::linear_cross_entropy(x, weight_, labels, bias());
}

Parameter& Linear::weight() {
  require(adapter_ == nullptr, path(),
          ": has an adapter, and its weight is not the whole layer; call forward() or "
          "cross_entropy()");
  return weight_;
}

}  // namespace zinc::nn
