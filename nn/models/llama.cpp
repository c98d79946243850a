#include "nn/models/llama.h"

#include <utility>

#include "autograd/ops/binary.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/ops/reshape.h"
#include "core/error.h"
#include "core/philox.h"
#include "nn/models/decoder.h"

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

// q, k or v of so many heads.
LinearOptions head_projection(const LlamaConfig& config, int64_t heads) {
  return projection(config, config.hidden_size, heads * config.head_dim(), config.has_qkv_bias());
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
      o_proj_(*this, "o_proj",
              projection(config, config.num_heads * config.head_dim(), config.hidden_size,
                         config.attention_bias)) {
  if (!config.has_head_norms()) return;
  const RMSNormOptions of_head{.features = config.head_dim(), .eps = config.rms_norm_epsilon};
  q_norm_.emplace(*this, "q_norm", of_head);
  k_norm_.emplace(*this, "k_norm", of_head);
}

Tensor LlamaAttention::turned(const Tensor& x, Linear& projection, std::optional<RMSNorm>& norm,
                              int64_t num_heads, const autograd::RotaryTable& table,
                              int64_t start) {
  Tensor rows = projection.forward(x);
  if (norm) {
    const Shape flat = rows.shape();
    const Shape heads{flat[0], flat[1], num_heads, head_dim_};
    rows = autograd::reshape(norm->forward(autograd::reshape(rows, heads)), flat);
  }
  return autograd::rotary(std::move(rows), table,
                          {.head_size = head_dim_, .num_heads = num_heads, .start = start});
}

Tensor LlamaAttention::forward(const Tensor& x, const PositionTerms& positions,
                               const AttentionScope& scope) {
  const int64_t start = start_of(scope);
  const Tensor q = turned(x, q_proj_, q_norm_, num_heads_, positions.rotary, start);
  Tensor k = turned(x, k_proj_, k_norm_, num_kv_heads_, positions.rotary, start);
  Tensor v = v_proj_.forward(x);
  if (scope.cache != nullptr) {
    KvCache::Seen seen = scope.cache->extend(k, v);
    k = std::move(seen.keys);
    v = std::move(seen.values);
  }
  const Tensor mixed = autograd::attention(q, k, v,
                                           {.num_heads = num_heads_,
                                            .num_kv_heads = num_kv_heads_,
                                            .window = positions.window,
                                            .key_lengths = scope.lengths,
                                            .key_begin = scope.document_starts,
                                            .dropout = is_training() ? dropout_ : 0.0,
                                            .site = site_});
  return o_proj_.forward(mixed);
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

Tensor LlamaBlock::forward(const Tensor& x, const PositionTerms& positions,
                           const AttentionScope& scope) {
  const autograd::ResidualNorm after = post_attention_layernorm_.forward(
      x, self_attn_.forward(input_layernorm_.forward(x), positions, scope));
  return autograd::add(after.sum, mlp_.forward(after.normed));
}

Llama::Decoder::Decoder(Module& parent, std::string name, const LlamaConfig& config)
    : Module(parent, std::move(name)),
      embed_tokens(*this, "embed_tokens",
                   {.count = config.vocab_size,
                    .features = config.hidden_size,
                    .initializer = weights_of(config)}),
      layers(*this, "layers", config.num_layers, config),
      norm(*this, "norm", norm_of(config)) {}

Llama::Llama(const LlamaConfig& config)
    : config_(validated(config)),
      model_(*this, "model", config),
      table_([config](int64_t positions, DType dtype) {
        const autograd::RotaryTable table =
            autograd::make_rotary_table(positions, config.head_dim(), config.rope_theta,
                                        scaling_of(config.rope_scaling), dtype);
        return TensorList{table.cos, table.sin};
      }) {
  if (!config.tie_word_embeddings) {
    lm_head_.emplace(*this, "lm_head",
                     LinearOptions{.in = config.hidden_size,
                                   .out = config.vocab_size,
                                   .bias = false,
                                   .initializer = weights_of(config)});
  }
}

Parameter& Llama::head() { return lm_head_ ? lm_head_->weight() : model_.embed_tokens.weight(); }

PositionTerms Llama::terms(int64_t layer, int64_t positions, DType dtype) {
  const TensorList& table = table_.get(positions, dtype == DType::f64 ? DType::f64 : DType::f32);
  return {.rotary = {.cos = table[0], .sin = table[1]}, .window = config_.window_of(layer)};
}

Tensor Llama::embed(const Tensor& ids) {
  require_sequence(*this, ids);
  return model_.embed_tokens.forward(ids);
}

Tensor Llama::hidden(const Tensor& ids, KvCache* cache) {
  Tensor x = embed(ids);
  const int64_t positions = cache == nullptr ? ids.dim(1) : cache->capacity();
  for (int64_t i = 0; i < model_.layers.size(); ++i) {
    x = model_.layers[i].forward(x, terms(i, positions, x.dtype()), {.cache = cache});
  }
  return model_.norm.forward(x);
}

int64_t Llama::num_stages() { return 2 + model_.layers.size(); }

TensorList Llama::stage(int64_t index, const Batch& batch, TensorList x) {
  if (index == 0) return {embed(batch["input_ids"])};
  if (is_block(index)) {
    const PositionTerms positions = terms(index - 1, x[0].dim(1), x[0].dtype());
    return {model_.layers[index - 1].forward(x[0], positions, scope_of(batch))};
  }
  const Tensor hidden = model_.norm.forward(std::exchange(x[0], {}));
  return {autograd::linear_cross_entropy(hidden, head(), batch["labels"])};
}

NamedTensors Llama::outputs(const Batch& batch) {
  const Tensor hidden = model_.norm.forward(before_last_stage(*this, batch)[0]);
  return {{"logits", all_logits(hidden, head())}, {"hidden", hidden}};
}

Tensor Llama::next_logits(const Tensor& ids) { return last_logits(hidden(ids, nullptr), head()); }

Tensor Llama::next_logits(const Tensor& ids, KvCache& cache) {
  require_room(*this, ids, cache);
  const Tensor logits = last_logits(hidden(ids, &cache), head());
  cache.advance(ids.dim(1));
  return logits;
}

double Llama::flops_per_token(int64_t sequence) {
  int64_t multiplied = num_parameters();
  if (lm_head_) multiplied -= model_.embed_tokens.weight().numel();
  const int64_t width = config_.num_heads * config_.head_dim();
  double flops = decoder_flops_per_token(multiplied, 0, width, sequence);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const int64_t window = config_.window_of(i);
    flops += causal_attention_flops(width, sequence, window == 0 ? sequence : window);
  }
  return flops;
}

}  // namespace zinc::nn
