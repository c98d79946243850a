#include "nn/attention/self_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/ops/linear.h"
#include "core/error.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {
namespace {

AttentionForm form_of(const SelfAttentionOptions& options) {
  return {.heads = options.heads,
          .kv_heads = options.kv_heads,
          .head_dim = options.features / std::max<int64_t>(options.heads, 1),
          .causal = options.causal,
          .dropout = options.attention_dropout,
          .rotary_layout = options.rotary_layout};
}

LinearOptions qkv_projection(const SelfAttentionOptions& options, const AttentionForm& form) {
  LinearOptions made = packed_heads_projection(options.features, form);
  made.bias = options.bias;
  made.layout = options.layout;
  made.initializer = options.initializer;
  return made;
}

LinearOptions output_projection(const SelfAttentionOptions& options) {
  return {.in = options.features,
          .out = options.features,
          .bias = options.output_bias.value_or(options.bias),
          .layout = options.layout,
          .initializer = options.output_initializer,
          .split = Split::rows};
}

// Glorot and Bengio 2010, for the three projections as one matrix.
autograd::Initializer packed_weights_of(int64_t features) {
  const double bound = std::sqrt(6.0 / static_cast<double>(4 * features));
  return autograd::Initializer::uniform(-bound, bound);
}

}  // namespace

SelfAttention::SelfAttention(Module& parent, std::string name, const SelfAttentionOptions& options)
    : AttentionLayer(parent, std::move(name), form_of(options)),
      c_attn_(*this, options.qkv_name, qkv_projection(options, form())),
      c_proj_(*this, options.output_name, output_projection(options)),
      resid_dropout_(*this, "resid_dropout", options.residual_dropout) {
  require(options.features % options.heads == 0, path(), ": ", options.features,
          " features cannot be split into ", options.heads, " heads");
}

Tensor SelfAttention::forward(const Tensor& x, const AttentionScope& scope,
                              const PositionTerms& positions) {
  const Tensor mixed = attend({.q = c_attn_.forward(x)}, scope, positions);
  return resid_dropout_.forward(c_proj_.forward(mixed));
}

ResidualSum SelfAttention::forward_onto(const Tensor& residual, const Tensor& x,
                                        const AttentionScope& scope,
                                        const PositionTerms& positions) {
  return c_proj_.forward_onto(residual, attend({.q = c_attn_.forward(x)}, scope, positions),
                              &resid_dropout_);
}

MultiheadAttention::MultiheadAttention(Module& parent, std::string name, int64_t features,
                                       int64_t heads, double dropout)
    : AttentionLayer(
          parent, std::move(name),
          {.heads = heads, .head_dim = features / heads, .causal = false, .dropout = dropout}),
      in_proj_weight_(*this, "in_proj_weight", Shape{3 * features, features},
                      packed_weights_of(features)),
      in_proj_bias_(*this, "in_proj_bias", Shape{3 * features}, autograd::Initializer::zeros()),
      out_proj_(*this, "out_proj", {.in = features, .out = features, .split = Split::rows}) {
  in_proj_weight_.slice_over_ranks({features, features, features});
  in_proj_bias_.slice_over_ranks({features, features, features});
}

void MultiheadAttention::on_share() {
  AttentionLayer::on_share();
  const int64_t width = in_proj_bias_.whole_shape()[0] / 3;
  slices_ =
      tensor_ranks() == nullptr ? nullptr : tensor_ranks()->slices_of({width, width, width}, false);
}

Tensor MultiheadAttention::forward(const Tensor& x, const AttentionScope& scope) {
  const Tensor qkv = autograd::linear(enter(tensor_ranks(), x), in_proj_weight_, in_proj_bias_,
                                      {.slices = slices_});
  return out_proj_.forward(attend({.q = qkv}, scope));
}

}  // namespace zinc::nn
