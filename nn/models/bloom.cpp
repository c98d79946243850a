#include "nn/models/bloom.h"

#include <utility>

#include "autograd/ops/attention.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "core/error.h"
#include "nn/models/decoder.h"

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
      x, self_attention_.forward(input_layernorm_.forward(x), scope, positions));
  return autograd::add(after.sum, mlp_.forward(after.normed));
}

Bloom::Transformer::Transformer(Module& parent, std::string name, const BloomConfig& config)
    : Module(parent, std::move(name)),
      word_embeddings(*this, "word_embeddings",
                      {.count = config.vocab_size,
                       .features = config.hidden_size,
                       .initializer = weights_of(config)}),
      word_embeddings_layernorm(*this, "word_embeddings_layernorm", norm_of(config)),
      h(*this, "h", config.num_layers, config),
      ln_f(*this, "ln_f", norm_of(config)) {}

Bloom::Bloom(const BloomConfig& config)
    : config_(validated(config)),
      transformer_(*this, "transformer", config),
      slopes_([heads = config.num_heads](int64_t, DType) {
        return TensorList{autograd::make_alibi_slopes(heads)};
      }) {
  if (!config.tie_word_embeddings) {
    lm_head_.emplace(*this, "lm_head",
                     LinearOptions{.in = config.hidden_size,
                                   .out = config.vocab_size,
                                   .bias = false,
                                   .initializer = weights_of(config)});
  }
}

Parameter& Bloom::head() {
  return lm_head_ ? lm_head_->weight() : transformer_.word_embeddings.weight();
}

PositionTerms Bloom::terms() {
  return {.alibi_slopes = slopes_.get(config_.num_heads, DType::f32)[0]};
}

Tensor Bloom::embed(const Tensor& ids) {
  require_sequence(*this, ids);
  return transformer_.word_embeddings_layernorm.forward(transformer_.word_embeddings.forward(ids));
}

Tensor Bloom::hidden(const Tensor& ids, KvCache* cache) {
  Tensor x = embed(ids);
  const PositionTerms positions = terms();
  for (BloomBlock& block : transformer_.h) x = block.forward(x, {.cache = cache}, positions);
  return transformer_.ln_f.forward(x);
}

int64_t Bloom::num_stages() { return 2 + transformer_.h.size(); }

TensorList Bloom::stage(int64_t index, const Batch& batch, TensorList x) {
  if (index == 0) return {embed(batch["input_ids"])};
  if (is_block(index)) return {transformer_.h[index - 1].forward(x[0], scope_of(batch), terms())};
  const Tensor hidden = transformer_.ln_f.forward(std::exchange(x[0], {}));
  return {autograd::linear_cross_entropy(hidden, head(), batch["labels"])};
}

NamedTensors Bloom::outputs(const Batch& batch) {
  const Tensor hidden = transformer_.ln_f.forward(before_last_stage(*this, batch)[0]);
  return {{"logits", all_logits(hidden, head())}, {"hidden", hidden}};
}

Tensor Bloom::next_logits(const Tensor& ids) { return last_logits(hidden(ids, nullptr), head()); }

Tensor Bloom::next_logits(const Tensor& ids, KvCache& cache) {
  require_room(*this, ids, cache);
  const Tensor logits = last_logits(hidden(ids, &cache), head());
  cache.advance(ids.dim(1));
  return logits;
}

double Bloom::flops_per_token(int64_t sequence) {
  int64_t multiplied = num_parameters();
  if (lm_head_) multiplied -= transformer_.word_embeddings.weight().numel();
  return decoder_flops_per_token(multiplied, config_.num_layers, config_.hidden_size, sequence);
}

}  // namespace zinc::nn
