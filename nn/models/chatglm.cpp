#include "nn/models/chatglm.h"

#include <utility>

#include "autograd/ops/rotary.h"

namespace zinc::nn {
namespace {

constexpr double kRopeTheta = 10000.0;

const ChatGlmConfig& validated(const ChatGlmConfig& config) {
  config.validate();
  return config;
}

autograd::Initializer weights_of(const ChatGlmConfig& config) {
  return autograd::Initializer::normal(config.initializer_range);
}

RMSNormOptions norm_of(const ChatGlmConfig& config) {
  return {.features = config.hidden_size, .eps = config.rms_norm_epsilon};
}

}  // namespace

ChatGlmBlock::ChatGlmBlock(Module& parent, std::string name, const ChatGlmConfig& config)
    : Module(parent, std::move(name)),
      input_layernorm_(*this, "input_layernorm", norm_of(config)),
      self_attention_(*this, "self_attention",
                      {.features = config.hidden_size,
                       .heads = config.num_heads,
                       .kv_heads = config.kv_heads(),
                       .bias = config.qkv_bias || config.linear_bias,
                       .output_bias = config.linear_bias,
                       .rotary_layout = autograd::RotaryLayout::interleaved,
                       .attention_dropout = config.attention_dropout,
                       .residual_dropout = config.hidden_dropout,
                       .initializer = weights_of(config),
                       .output_initializer = weights_of(config),
                       .qkv_name = "query_key_value",
                       .output_name = "dense"}),
      post_attention_layernorm_(*this, "post_attention_layernorm", norm_of(config)),
      mlp_(*this, "mlp",
           {.features = config.hidden_size,
            .hidden = config.intermediate_size,
            .bias = config.linear_bias,
            .dropout = config.hidden_dropout,
            .initializer = weights_of(config),
            .inner_name = "dense_h_to_4h",
            .output_name = "dense_4h_to_h"}) {}

Tensor ChatGlmBlock::forward(const Tensor& x, const AttentionScope& scope,
                             const PositionTerms& positions) {
  const autograd::ResidualNorm after = post_attention_layernorm_.forward(
      self_attention_.forward_onto(x, input_layernorm_.forward(x), scope, positions));
  return mlp_.forward_onto(after.sum, after.normed).value();
}

ChatGlm::Words::Words(Module& parent, std::string name, const ChatGlmConfig& config)
    : Module(parent, std::move(name)),
      word_embeddings(*this, "word_embeddings",
                      {.count = config.vocab_size,
                       .features = config.hidden_size,
                       .initializer = weights_of(config),
                       .adaptable = true,
                       .sliced = true}) {}

ChatGlm::Encoder::Encoder(Module& parent, std::string name, const ChatGlmConfig& config)
    : Module(parent, std::move(name)),
      layers(*this, "layers", config.num_layers, config),
      final_layernorm(*this, "final_layernorm", norm_of(config)) {}

ChatGlm::Transformer::Transformer(Module& parent, std::string name, const ChatGlmConfig& config)
    : Module(parent, std::move(name)),
      embedding(*this, "embedding", config),
      encoder(*this, "encoder", config),
      output_layer(*this, "output_layer", embedding.word_embeddings, config.tie_word_embeddings,
                   weights_of(config)) {}

ChatGlm::ChatGlm(const ChatGlmConfig& config)
    : config_(validated(config)),
      transformer_(*this, "transformer", config),
      table_([config](int64_t positions, DType dtype) {
        const autograd::RotaryTable table = autograd::make_rotary_table(
            positions, config.rotary_dims(), kRopeTheta * config.rope_ratio, {}, dtype);
        return TensorList{table.cos, table.sin};
      }) {}

PositionTerms ChatGlm::terms(int64_t, int64_t count, DType dtype) {
  const TensorList& table = table_.get(count, dtype == DType::f64 ? DType::f64 : DType::f32);
  return {.rotary = {.cos = table[0], .sin = table[1]}};
}

Tensor ChatGlm::embed(const Tensor& ids, const AttentionScope&) {
  require_sequence(*this, ids);
  return transformer_.embedding.word_embeddings.forward(ids);
}

Tensor ChatGlm::block(int64_t layer, const Tensor& x, const AttentionScope& scope,
                      const PositionTerms& positions) {
  return transformer_.encoder.layers[layer].forward(x, scope, positions);
}

double ChatGlm::flops_per_token(int64_t sequence) {
  int64_t multiplied = num_parameters();
  if (!head().is_tied())
    multiplied -= transformer_.embedding.word_embeddings.weight().whole_shape().numel();
  return decoder_flops_per_token(multiplied, config_.num_layers, config_.hidden_size, sequence);
}

}  // namespace zinc::nn
