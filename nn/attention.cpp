#include "nn/attention.h"

#include <utility>

#include "core/error.h"
#include "core/philox.h"
#include "nn/kv_cache.h"

namespace zinc::nn {
namespace {

LinearOptions projection(const SelfAttentionOptions& options, int64_t factor,
                         const std::optional<autograd::Initializer>& initializer) {
  return {.in = options.features,
          .out = factor * options.features,
          .bias = options.bias,
          .layout = options.layout,
          .initializer = initializer};
}

}  // namespace

SelfAttention::SelfAttention(Module& parent, std::string name, const SelfAttentionOptions& options)
    : Module(parent, std::move(name)),
      options_(options),
      site_(hash_text(path())),
      c_attn_(*this, options.qkv_name, projection(options, 3, options.initializer)),
      c_proj_(*this, options.output_name, projection(options, 1, options.output_initializer)),
      resid_dropout_(*this, "resid_dropout", options.residual_dropout) {
  require(options.heads > 0 && options.features % options.heads == 0, path(), ": ",
          options.features, " features cannot be split into ", options.heads, " heads");
}

Tensor SelfAttention::forward(const Tensor& x, const AttentionScope& scope,
                              const PositionTerms& positions) {
  Tensor qkv = c_attn_.forward(x);
  if (positions.rotary.cos.defined()) {
    qkv = autograd::rotary(std::move(qkv), positions.rotary,
                           {.head_size = options_.features / options_.heads,
                            .num_heads = 2 * options_.heads,
                            .start = scope.cache == nullptr ? 0 : scope.cache->length()});
  }
  const autograd::AttentionOptions how{.num_heads = options_.heads,
                                       .causal = options_.causal,
                                       .window = positions.window,
                                       .key_lengths = scope.lengths,
                                       .key_begin = scope.document_starts,
                                       .alibi_slopes = positions.alibi_slopes,
                                       .dropout = is_training() ? options_.attention_dropout : 0.0,
                                       .site = site_};
  Tensor mixed;
  if (scope.cache == nullptr) {
    mixed = autograd::attention(qkv, how);
  } else {
    const int64_t width = options_.features;
    const KvCache::Seen seen =
        scope.cache->extend(qkv.narrow_view(2, width, width), qkv.narrow_view(2, 2 * width, width));
    mixed = autograd::attention(qkv.narrow_view(2, 0, width), seen.keys, seen.values, how);
  }
  return resid_dropout_.forward(c_proj_.forward(mixed));
}

}  // namespace zinc::nn
