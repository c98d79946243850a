#include "nn/linear.h"

#include <cmath>

#include "autograd/ops/binary.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/ops/value.h"
#include "core/error.h"
#include "nn/lora.h"
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

Tensor Linear::plain(const Tensor& x, autograd::Activation activation) {
  if (tensor_ranks() != nullptr && options_.split == Split::rows) {
    autograd::LinearOptions how{.layout = options_.layout, .slices = slices_};
    TensorRanks& ranks = *tensor_ranks();
    const bool shares_tokens = ranks.shares_tokens();
    if (slices_ == nullptr && !shares_tokens) {
      how.in_rows = [&ranks](const Tensor& sum, const auto& make) { ranks.sum_in_rows(sum, make); };
    }
    Tensor y = autograd::linear(x, weight_, {}, how);
    if (shares_tokens) y = ranks.leave(y);
    return bias_ ? autograd::add(y, autograd::value(own_weight(tensor_ranks(), *bias_))) : y;
  }
  if (tensor_ranks() != nullptr && options_.split == Split::columns && !options_.spread) {
    return autograd::linear(
        enter(tensor_ranks(), x), weight_, bias(),
        {.layout = options_.layout, .activation = activation, .slices = slices_});
  }
  if (options_.split == Split::none) {
    return autograd::linear(x, own_weight(tensor_ranks(), weight_),
                            own_weight(tensor_ranks(), bias()),
                            {.layout = options_.layout, .activation = activation});
  }
  return autograd::linear(x, weight_, bias(),
                          {.layout = options_.layout, .activation = activation, .slices = slices_});
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
