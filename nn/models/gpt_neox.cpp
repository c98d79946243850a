#include "nn/models/gpt_neox.h"

#include <utility>

#include "autograd/ops/binary.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "core/error.h"
#include "nn/models/decoder.h"

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
  const Tensor attended = attention_.forward(input_layernorm_.forward(x), scope, positions);
  if (parallel_) {
    const Tensor mlp = mlp_.forward(post_attention_layernorm_.forward(x));
    return autograd::add(autograd::add(x, attended), mlp);
  }
  const autograd::ResidualNorm after = post_attention_layernorm_.forward(x, attended);
  return autograd::add(after.sum, mlp_.forward(after.normed));
}

GptNeox::Decoder::Decoder(Module& parent, std::string name, const GptNeoxConfig& config)
    : Module(parent, std::move(name)),
      embed_in(*this, "embed_in",
               {.count = config.vocab_size,
                .features = config.hidden_size,
                .initializer = weights_of(config)}),
      emb_dropout(*this, "emb_dropout", config.hidden_dropout),
      layers(*this, "layers", config.num_layers, config),
      final_layer_norm(*this, "final_layer_norm", norm_of(config)) {}

GptNeox::GptNeox(const GptNeoxConfig& config)
    : config_(validated(config)),
      gpt_neox_(*this, "gpt_neox", config),
      table_([config](int64_t positions, DType dtype) {
        const autograd::RotaryTable table = autograd::make_rotary_table(
            positions, config.rotary_dims(), config.rope_theta, {}, dtype);
        return TensorList{table.cos, table.sin};
      }) {
  if (!config.tie_word_embeddings) {
    embed_out_.emplace(*this, "embed_out",
                       LinearOptions{.in = config.hidden_size,
                                     .out = config.vocab_size,
                                     .bias = false,
                                     .initializer = weights_of(config)});
  }
}

Parameter& GptNeox::head() {
  return embed_out_ ? embed_out_->weight() : gpt_neox_.embed_in.weight();
}

PositionTerms GptNeox::terms(int64_t positions, DType dtype) {
  const TensorList& table = table_.get(positions, dtype == DType::f64 ? DType::f64 : DType::f32);
  return {.rotary = {.cos = table[0], .sin = table[1]}};
}

Tensor GptNeox::embed(const Tensor& ids) {
  require_sequence(*this, ids);
  return gpt_neox_.emb_dropout.forward(gpt_neox_.embed_in.forward(ids));
}

Tensor GptNeox::hidden(const Tensor& ids, KvCache* cache) {
  Tensor x = embed(ids);
  const PositionTerms positions =
      terms(cache == nullptr ? ids.dim(1) : cache->capacity(), x.dtype());
  for (GptNeoxBlock& layer : gpt_neox_.layers) x = layer.forward(x, {.cache = cache}, positions);
  return gpt_neox_.final_layer_norm.forward(x);
}

int64_t GptNeox::num_stages() { return 2 + gpt_neox_.layers.size(); }

TensorList GptNeox::stage(int64_t index, const Batch& batch, TensorList x) {
  if (index == 0) return {embed(batch["input_ids"])};
  if (is_block(index)) {
    const PositionTerms positions = terms(x[0].dim(1), x[0].dtype());
    return {gpt_neox_.layers[index - 1].forward(x[0], scope_of(batch), positions)};
  }
  const Tensor hidden = gpt_neox_.final_layer_norm.forward(std::exchange(x[0], {}));
  return {autograd::linear_cross_entropy(hidden, head(), batch["labels"])};
}

NamedTensors GptNeox::outputs(const Batch& batch) {
  const Tensor hidden = gpt_neox_.final_layer_norm.forward(before_last_stage(*this, batch)[0]);
  return {{"logits", all_logits(hidden, head())}, {"hidden", hidden}};
}

Tensor GptNeox::next_logits(const Tensor& ids) { return last_logits(hidden(ids, nullptr), head()); }

Tensor GptNeox::next_logits(const Tensor& ids, KvCache& cache) {
  require_room(*this, ids, cache);
  const Tensor logits = last_logits(hidden(ids, &cache), head());
  cache.advance(ids.dim(1));
  return logits;
}

double GptNeox::flops_per_token(int64_t sequence) {
  int64_t multiplied = num_parameters();
  if (embed_out_) multiplied -= gpt_neox_.embed_in.weight().numel();
  return decoder_flops_per_token(multiplied, config_.num_layers, config_.hidden_size, sequence);
}

}  // namespace zinc::nn
