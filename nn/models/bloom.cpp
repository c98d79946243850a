#include "nn/models/bloom.h"

#include <utility>

#include "autograd/ops/attention.h"
#include "core/error.h"

namespace zinc::nn {
namespace {

const BloomConfig& validated(const BloomConfig& config) {
  config.validate();
  return config;
}

autograd::Initializer weights_of(const BloomConfig& config) {
  return autograd::Initializer::normal(config.initializer_range);
}

LayerNormOptions norm_of(const BloomConfig& config) {
  return {.features = config.hidden_size, .eps = config.layer_norm_epsilon};
}

}  // namespace

BloomBlock::BloomBlock(Module& parent, std::string name, const BloomConfig& config)
    : Module(parent, std::move(name)),
      input_layernorm_(*this, "input_layernorm", norm_of(config)),
      self_attention_(*this, "self_attention",
                      {.features = config.hidden_size,
                       .heads = config.num_heads,
                       .attention_dropout = config.attention_dropout,
                       .residual_dropout = config.hidden_dropout,
                       .initializer = weights_of(config),
                       .output_initializer = weights_of(config),
                       .qkv_name = "query_key_value",
                       .output_name = "dense"}),
      post_attention_layernorm_(*this, "post_attention_layernorm", norm_of(config)),
      mlp_(*this, "mlp",
           {.features = config.hidden_size,
            .hidden = config.mlp_size(),
            .activation = MlpActivation::gelu_tanh,
            .dropout = config.hidden_dropout,
            .initializer = weights_of(config),
            .output_initializer = weights_of(config),
            .inner_name = "dense_h_to_4h",
            .output_name = "dense_4h_to_h"}) {}

Tensor BloomBlock::forward(const Tensor& x, const AttentionScope& scope,
                           const PositionTerms& positions) {
  const autograd::ResidualNorm after = post_attention_layernorm_.forward(
      self_attention_.forward_onto(x, input_layernorm_.forward(x), scope, positions));
  return mlp_.forward_onto(after.sum, after.normed).value();
}

Bloom::Transformer::Transformer(Module& parent, std::string name, const BloomConfig& config)
    : Module(parent, std::move(name)),
      word_embeddings(*this, "word_embeddings",
                      {.count = config.vocab_size,
                       .features = config.hidden_size,
                       .initializer = weights_of(config),
                       .adaptable = true,
                       .sliced = true}),
      word_embeddings_layernorm(*this, "word_embeddings_layernorm", norm_of(config)),
      h(*this, "h", config.num_layers, config),
      ln_f(*this, "ln_f", norm_of(config)) {}

Bloom::Bloom(const BloomConfig& config)
    : config_(validated(config)),
      transformer_(*this, "transformer", config),
      head_(*this, "lm_head", transformer_.word_embeddings, config.tie_word_embeddings,
            weights_of(config)),
      slopes_([heads = config.num_heads](int64_t, DType) {
        return TensorList{autograd::make_alibi_slopes(heads)};
      }) {}

PositionTerms Bloom::terms(int64_t, int64_t, DType) {
  return {.alibi_slopes = slopes_.get(config_.num_heads, DType::f32)[0]};
}

Tensor Bloom::embed(const Tensor& ids, const AttentionScope&) {
  require_sequence(*this, ids);
  return transformer_.word_embeddings_layernorm.forward(transformer_.word_embeddings.forward(ids));
}

Tensor Bloom::block(int64_t layer, const Tensor& x, const AttentionScope& scope,
                    const PositionTerms& positions) {
  return transformer_.h[layer].forward(x, scope, positions);
}

double Bloom::flops_per_token(int64_t sequence) {
  int64_t multiplied = num_parameters();
  if (!head_.is_tied()) multiplied -= transformer_.word_embeddings.weight().whole_shape().numel();
  return decoder_flops_per_token(multiplied, config_.num_layers, config_.hidden_size, sequence);
}

}  // namespace zinc::nn
