#include "nn/models/gpt_neox.h"

#include <utility>

#include "core/error.h"

namespace zinc::nn {
namespace {

const GptNeoxConfig& validated(const GptNeoxConfig& config) {
  config.validate();
  return config;
}

autograd::Initializer weights_of(const GptNeoxConfig& config) {
  return autograd::Initializer::normal(config.initializer_range);
}

LayerNormOptions norm_of(const GptNeoxConfig& config) {
  return {.features = config.hidden_size, .eps = config.layer_norm_epsilon};
}

}  // namespace

GptNeoxBlock::GptNeoxBlock(Module& parent, std::string name, const GptNeoxConfig& config)
    : Module(parent, std::move(name)),
      parallel_(config.parallel_residual),
      input_layernorm_(*this, "input_layernorm", norm_of(config)),
      post_attention_layernorm_(*this, "post_attention_layernorm", norm_of(config)),
      attention_(*this, "attention",
                 {.features = config.hidden_size,
                  .heads = config.num_heads,
                  .bias = config.attention_bias,
                  .attention_dropout = config.attention_dropout,
                  .residual_dropout = config.hidden_dropout,
                  .initializer = weights_of(config),
                  .output_initializer = weights_of(config),
                  .qkv_name = "query_key_value",
                  .output_name = "dense"}),
      mlp_(*this, "mlp",
           {.features = config.hidden_size,
            .hidden = config.intermediate_size,
            .activation = config.activation,
            .dropout = config.hidden_dropout,
            .initializer = weights_of(config),
            .output_initializer = weights_of(config),
            .inner_name = "dense_h_to_4h",
            .output_name = "dense_4h_to_h"}) {}

Tensor GptNeoxBlock::forward(const Tensor& x, const AttentionScope& scope,
                             const PositionTerms& positions) {
  const ResidualSum sum = attention_.forward_onto(x, input_layernorm_.forward(x), scope, positions);
  if (parallel_) {
    const Tensor attended = sum.value();
    return mlp_.forward_onto(attended, post_attention_layernorm_.forward(x)).value();
  }
  const autograd::ResidualNorm after = post_attention_layernorm_.forward(sum);
  return mlp_.forward_onto(after.sum, after.normed).value();
}

GptNeox::Body::Body(Module& parent, std::string name, const GptNeoxConfig& config)
    : Module(parent, std::move(name)),
      embed_in(*this, "embed_in",
               {.count = config.vocab_size,
                .features = config.hidden_size,
                .initializer = weights_of(config),
                .adaptable = true,
                .sliced = true}),
      emb_dropout(*this, "emb_dropout", config.hidden_dropout),
      layers(*this, "layers", config.num_layers, config),
      final_layer_norm(*this, "final_layer_norm", norm_of(config)) {}

GptNeox::GptNeox(const GptNeoxConfig& config)
    : config_(validated(config)),
      gpt_neox_(*this, "gpt_neox", config),
      head_(*this, "embed_out", gpt_neox_.embed_in, config.tie_word_embeddings, weights_of(config)),
      table_([config](int64_t positions, DType dtype) {
        const autograd::RotaryTable table = autograd::make_rotary_table(
            positions, config.rotary_dims(), config.rope_theta, {}, dtype);
        return TensorList{table.cos, table.sin};
      }) {}

PositionTerms GptNeox::terms(int64_t, int64_t count, DType dtype) {
  const TensorList& table = table_.get(count, dtype == DType::f64 ? DType::f64 : DType::f32);
  return {.rotary = {.cos = table[0], .sin = table[1]}};
}

Tensor GptNeox::embed(const Tensor& ids, const AttentionScope&) {
  require_sequence(*this, ids);
  return gpt_neox_.emb_dropout.forward(gpt_neox_.embed_in.forward(ids));
}

Tensor GptNeox::block(int64_t layer, const Tensor& x, const AttentionScope& scope,
                      const PositionTerms& positions) {
  return gpt_neox_.layers[layer].forward(x, scope, positions);
}

double GptNeox::flops_per_token(int64_t sequence) {
  int64_t multiplied = num_parameters();
  if (!head_.is_tied()) multiplied -= gpt_neox_.embed_in.weight().whole_shape().numel();
  return decoder_flops_per_token(multiplied, config_.num_layers, config_.hidden_size, sequence);
}

}  // namespace zinc::nn
