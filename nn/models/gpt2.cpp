#include "nn/models/gpt2.h"

#include <cmath>
#include <utility>

#include "nn/attention/positions.h"

namespace zinc::nn {
namespace {

const Gpt2Config& validated(const Gpt2Config& config) {
  config.validate();
  return config;
}

autograd::Initializer weights_of(const Gpt2Config& config) {
  return autograd::Initializer::normal(config.initializer_range);
}

// Section 2.3: weights of residual projections are scaled by 1 / sqrt(number of residual layers).
autograd::Initializer residual_weights_of(const Gpt2Config& config) {
  return autograd::Initializer::normal(config.initializer_range /
                                       std::sqrt(2.0 * static_cast<double>(config.num_layers)));
}

MlpActivation activation_of(const Gpt2Config& config) {
  switch (config.activation) {
    case Gpt2Activation::gelu_tanh:
      return MlpActivation::gelu_tanh;
    case Gpt2Activation::gelu_erf:
      return MlpActivation::gelu_erf;
    case Gpt2Activation::relu:
      return MlpActivation::relu;
  }
  return MlpActivation::gelu_tanh;
}

LayerNormOptions norm_of(const Gpt2Config& config) {
  return {.features = config.hidden_size, .eps = config.layer_norm_epsilon};
}

}  // namespace

Gpt2Block::Gpt2Block(Module& parent, std::string name, const Gpt2Config& config)
    : Module(parent, std::move(name)),
      ln_1_(*this, "ln_1", norm_of(config)),
      attn_(*this, "attn",
            {.features = config.hidden_size,
             .heads = config.num_heads,
             .attention_dropout = config.attention_dropout,
             .residual_dropout = config.residual_dropout,
             .layout = autograd::WeightLayout::in_out,
             .initializer = weights_of(config),
             .output_initializer = residual_weights_of(config)}),
      ln_2_(*this, "ln_2", norm_of(config)),
      mlp_(*this, "mlp",
           {.features = config.hidden_size,
            .hidden = config.mlp_size(),
            .activation = activation_of(config),
            .dropout = config.residual_dropout,
            .layout = autograd::WeightLayout::in_out,
            .initializer = weights_of(config),
            .output_initializer = residual_weights_of(config)}) {}

Tensor Gpt2Block::forward(const Tensor& x, const AttentionScope& scope) {
  const autograd::ResidualNorm after =
      ln_2_.forward(attn_.forward_onto(x, ln_1_.forward(x), scope));
  return mlp_.forward_onto(after.sum, after.normed).value();
}

Gpt2::Transformer::Transformer(Module& parent, std::string name, const Gpt2Config& config)
    : Module(parent, std::move(name)),
      wte(*this, "wte",
          {.count = config.vocab_size,
           .features = config.hidden_size,
           .initializer = weights_of(config),
           .adaptable = true,
           .sliced = true}),
      wpe(*this, "wpe",
          {.count = config.max_positions,
           .features = config.hidden_size,
           .initializer = weights_of(config)}),
      drop(*this, "drop", config.embedding_dropout),
      h(*this, "h", config.num_layers, config),
      ln_f(*this, "ln_f", norm_of(config)) {}

Gpt2::Gpt2(const Gpt2Config& config)
    : config_(validated(config)),
      transformer_(*this, "transformer", config),
      head_(*this, "lm_head", transformer_.wte, config.tie_word_embeddings, weights_of(config)) {}

Tensor Gpt2::embed(const Tensor& ids, const AttentionScope& scope) {
  require_sequence(*this, ids);
  return transformer_.drop.forward(
      embed_with_positions(transformer_.wte, transformer_.wpe, ids, scope));
}

Tensor Gpt2::block(int64_t layer, const Tensor& x, const AttentionScope& scope,
                   const PositionTerms&) {
  return transformer_.h[layer].forward(x, scope);
}

double Gpt2::flops_per_token(int64_t sequence) {
  // Every weight but the position table is a factor of a product; a tied wte is, in the head.
  int64_t multiplied = num_parameters() - transformer_.wpe.weight().numel();
  if (!head_.is_tied()) multiplied -= transformer_.wte.weight().whole_shape().numel();
  return decoder_flops_per_token(multiplied, config_.num_layers, config_.hidden_size, sequence);
}

}  // namespace zinc::nn
