#include "nn/models/llama.h"

#include <utility>
#include <vector>

namespace zinc::nn {
namespace {

const LlamaConfig& validated(const LlamaConfig& config) {
  config.validate();
  return config;
}

autograd::Initializer weights_of(const LlamaConfig& config) {
  return autograd::Initializer::normal(config.initializer_range);
}

LinearOptions projection(const LlamaConfig& config, int64_t in, int64_t out, bool bias) {
  return {.in = in, .out = out, .bias = bias, .initializer = weights_of(config)};
}

LinearOptions output_projection(const LlamaConfig& config) {
  LinearOptions options = projection(config, config.num_heads * config.head_dim(),
                                     config.hidden_size, config.attention_bias);
  options.split = Split::rows;
  return options;
}

// The projection to q, k or v with `heads` heads.
LinearOptions head_projection(const LlamaConfig& config, int64_t heads) {
  LinearOptions options =
      projection(config, config.hidden_size, heads * config.head_dim(), config.has_qkv_bias());
  options.split = Split::columns;
  options.spread = true;
  return options;
}

RMSNormOptions norm_of(const LlamaConfig& config) {
  return {.features = config.hidden_size, .eps = config.rms_norm_epsilon};
}

kernels::RotaryScaling scaling_of(const RopeScaling& scaling) {
  kernels::RotaryScaling result{.factor = scaling.factor,
                                .low_freq_factor = scaling.low_freq_factor,
                                .high_freq_factor = scaling.high_freq_factor};
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
      break;
    case RopeScaling::Kind::linear:
      result.kind = kernels::RotaryScaling::Kind::linear;
      break;
    case RopeScaling::Kind::llama3:
      result.kind = kernels::RotaryScaling::Kind::llama3;
      result.original_max_positions = static_cast<double>(scaling.original_max_positions);
      break;
  }
  return result;
}

}  // namespace

LlamaAttention::LlamaAttention(Module& parent, std::string name, const LlamaConfig& config)
    : AttentionLayer(parent, std::move(name),
                     {.heads = config.num_heads,
                      .kv_heads = config.kv_heads(),
                      .head_dim = config.head_dim(),
                      .dropout = config.attention_dropout}),
      q_proj_(*this, "q_proj", head_projection(config, config.num_heads)),
      k_proj_(*this, "k_proj", head_projection(config, config.kv_heads())),
      v_proj_(*this, "v_proj", head_projection(config, config.kv_heads())),
      o_proj_(*this, "o_proj", output_projection(config)) {
  if (!config.has_head_norms()) return;
  const RMSNormOptions of_head{
      .features = config.head_dim(), .eps = config.rms_norm_epsilon, .of_slice = true};
  q_norm_.emplace(*this, "q_norm", of_head);
  k_norm_.emplace(*this, "k_norm", of_head);
  norm_heads(*q_norm_, *k_norm_);
}

HeadRows LlamaAttention::projected(const Tensor& x) {
  if (!q_norm_) {
    Tensor qkv = Linear::as_one_product(x, {&q_proj_, &k_proj_, &v_proj_});
    if (qkv.defined()) return {.q = std::move(qkv)};
  }
  std::vector<Tensor> rows = Linear::of_one_input(x, {&q_proj_, &k_proj_, &v_proj_});
  return {.q = std::move(rows[0]), .k = std::move(rows[1]), .v = std::move(rows[2])};
}

ResidualSum LlamaAttention::forward_onto(const Tensor& residual, const Tensor& x,
                                         const AttentionScope& scope,
                                         const PositionTerms& positions) {
  return o_proj_.forward_onto(residual, attend(projected(x), scope, positions));
}

LlamaBlock::LlamaBlock(Module& parent, std::string name, const LlamaConfig& config)
    : Module(parent, std::move(name)),
      self_attn_(*this, "self_attn", config),
      mlp_(*this, "mlp",
           {.features = config.hidden_size,
            .hidden = config.intermediate_size,
            .bias = config.mlp_bias,
            .initializer = weights_of(config)}),
      input_layernorm_(*this, "input_layernorm", norm_of(config)),
      post_attention_layernorm_(*this, "post_attention_layernorm", norm_of(config)) {}

Tensor LlamaBlock::forward(const Tensor& x, const AttentionScope& scope,
                           const PositionTerms& positions) {
  const autograd::ResidualNorm after = post_attention_layernorm_.forward(
      self_attn_.forward_onto(x, input_layernorm_.forward(x), scope, positions));
  return mlp_.forward_onto(after.sum, after.normed).value();
}

Llama::Body::Body(Module& parent, std::string name, const LlamaConfig& config)
    : Module(parent, std::move(name)),
      embed_tokens(*this, "embed_tokens",
                   {.count = config.vocab_size,
                    .features = config.hidden_size,
                    .initializer = weights_of(config),
                    .adaptable = true,
                    .sliced = true}),
      layers(*this, "layers", config.num_layers, config),
      norm(*this, "norm", norm_of(config)) {}

Llama::Llama(const LlamaConfig& config)
    : config_(validated(config)),
      model_(*this, "model", config),
      head_(*this, "lm_head", model_.embed_tokens, config.tie_word_embeddings, weights_of(config)),
      table_([config](int64_t positions, DType dtype) {
        const autograd::RotaryTable table =
            autograd::make_rotary_table(positions, config.head_dim(), config.rope_theta,
                                        scaling_of(config.rope_scaling), dtype);
        return TensorList{table.cos, table.sin};
      }) {}

PositionTerms Llama::terms(int64_t layer, int64_t count, DType dtype) {
  const TensorList& table = table_.get(count, dtype == DType::f64 ? DType::f64 : DType::f32);
  return {.rotary = {.cos = table[0], .sin = table[1]}, .window = config_.window_of(layer)};
}

Tensor Llama::embed(const Tensor& ids, const AttentionScope&) {
  require_sequence(*this, ids);
  return model_.embed_tokens.forward(ids);
}

Tensor Llama::block(int64_t layer, const Tensor& x, const AttentionScope& scope,
                    const PositionTerms& positions) {
  return model_.layers[layer].forward(x, scope, positions);
}

double Llama::flops_per_token(int64_t sequence) {
  int64_t multiplied = num_parameters();
  if (!head_.is_tied()) multiplied -= model_.embed_tokens.weight().whole_shape().numel();
  const int64_t width = config_.num_heads * config_.head_dim();
  double flops = decoder_flops_per_token(multiplied, 0, width, sequence);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const int64_t window = config_.window_of(i);
    flops += causal_attention_flops(width, sequence, window == 0 ? sequence : window);
  }
  return flops;
}

}  // namespace zinc::nn
