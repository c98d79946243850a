#include "nn/models/llama.h"

#include <utility>

#include "autograd/ops/concat.h"
#include "autograd/ops/reshape.h"
#include "core/error.h"
#include "core/philox.h"
#include "nn/sequence_ranks.h"
#include "nn/tensor_ranks.h"

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
    : Module(parent, std::move(name)),
      num_heads_(config.num_heads),
      num_kv_heads_(config.kv_heads()),
      head_dim_(config.head_dim()),
      dropout_(config.attention_dropout),
      site_(hash_text(path())),
      q_proj_(*this, "q_proj", head_projection(config, config.num_heads)),
      k_proj_(*this, "k_proj", head_projection(config, config.kv_heads())),
      v_proj_(*this, "v_proj", head_projection(config, config.kv_heads())),
      o_proj_(*this, "o_proj", output_projection(config)) {
  if (!config.has_head_norms()) return;
  const RMSNormOptions of_head{
      .features = config.head_dim(), .eps = config.rms_norm_epsilon, .of_slice = true};
  q_norm_.emplace(*this, "q_norm", of_head);
  k_norm_.emplace(*this, "k_norm", of_head);
}

Tensor LlamaAttention::turned(Tensor rows, std::optional<RMSNorm>& norm, int64_t num_heads,
                              const autograd::RotaryTable& table, const AttentionScope& scope) {
  if (norm) {
    const Shape flat = rows.shape();
    const Shape heads{flat[0], flat[1], num_heads, head_dim_};
    rows = autograd::reshape(norm->forward(autograd::reshape(rows, heads)), flat);
  }
  return autograd::rotary(std::move(rows), table,
                          {.head_size = head_dim_,
                           .num_heads = num_heads,
                           .positions = scope.positions,
                           .start = start_of(scope)});
}

ResidualSum LlamaAttention::forward_onto(const Tensor& residual, const Tensor& x,
                                         const AttentionScope& scope,
                                         const PositionTerms& positions) {
  Tensor qkv;
  if (!q_norm_) qkv = Linear::as_one_product(x, {&q_proj_, &k_proj_, &v_proj_});
  if (qkv.defined()) {
    const PackedHeads of{.heads = num_heads_,
                         .kv_heads = num_kv_heads_,
                         .head_dim = head_dim_,
                         .dropout = is_training() ? dropout_ : 0.0,
                         .site = site_};
    const Tensor mixed = mix_heads(path(), of, tensor_ranks(), std::move(qkv), scope, positions);
    return o_proj_.forward_onto(residual, mixed);
  }
  std::vector<Tensor> columns = Linear::of_one_input(x, {&q_proj_, &k_proj_, &v_proj_});
  const LocalHeads slice =
      LocalHeads::of(path(), num_heads_, num_kv_heads_, tensor_ranks(), nullptr);
  const LocalHeads local =
      LocalHeads::of(path(), num_heads_, num_kv_heads_, tensor_ranks(), scope.sequence);
  const auto to_heads = [&](Tensor x) {
    return gets_heads(scope) ? scope.sequence->to_heads(x, {x.dim(2)}) : x;
  };
  const auto own = [&](Tensor& features) {
    return own_kv_heads(tensor_ranks(), std::move(features), num_kv_heads_, head_dim_);
  };
  const Tensor q =
      to_heads(turned(std::move(columns[0]), q_norm_, slice.heads, positions.rotary, scope));
  Tensor k = to_heads(turned(own(columns[1]), k_norm_, slice.kv_heads, positions.rotary, scope));
  Tensor v = to_heads(own(columns[2]));
  if (scope.cache != nullptr) {
    KvCache::Seen seen = scope.cache->extend(k, v, local.kv_heads);
    k = std::move(seen.keys);
    v = std::move(seen.values);
  }
  const autograd::AttentionOptions how{.num_heads = local.heads,
                                       .num_kv_heads = local.kv_heads,
                                       .window = positions.window,
                                       .key_lengths = scope.lengths,
                                       .key_begin = scope.document_starts,
                                       .dropout = is_training() ? dropout_ : 0.0,
                                       .site = site_};
  if (keeps_queries(scope)) {
    const Tensor all = autograd::concat({k, v}, 2);
    const Tensor mixed = attend_to_all(*scope.sequence, q, all, of_rank(tensor_ranks(), how));
    return o_proj_.forward_onto(residual, mixed);
  }
  Tensor mixed = attend_own_heads(tensor_ranks(), q, k, v, how);
  if (gets_heads(scope)) mixed = scope.sequence->to_tokens(mixed);
  return o_proj_.forward_onto(residual, mixed);
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
